// Regular languages over bytes, and their automata by derivatives: the derivative of a language by a byte is what may
// follow that byte (Brzozowski 1964; Owens, Reppy and Turon, "Regular-expression derivatives re-examined", 2009). Equal
// expressions are one node, so derivatives are the states of a DFA that is built as far as it is used.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/byte_set.h"
#include "grammar/id_table.h"

namespace quire::grammar {

using RegexId = uint32_t;
inline constexpr RegexId kNothing = 0;  // no text
inline constexpr RegexId kEmpty = 1;    // the empty text
inline constexpr uint32_t kUnbounded = UINT32_MAX;

// Counts work. Throws quire::Error (kResource) when it is used up, or the stop token asks.
struct Budget {
  uint64_t steps = 0;
  size_t nodes = 0;
  std::stop_token stop = {};

  void spend(uint64_t n = 1) {
    if (n > steps || (steps ^ (steps - n)) >> 12 != 0) pause(n);
    steps -= n;
  }
  void pause(uint64_t n) const;
  [[noreturn]] void exhausted() const;
};

class RegexStore {
 public:
  explicit RegexStore(const Budget& budget);

  RegexId bytes(const ByteSet& set);
  RegexId range(unsigned first, unsigned last) { return bytes(ByteSet::range(first, last)); }
  RegexId literal(std::string_view text);
  RegexId one_of(std::vector<std::string> texts);
  RegexId concat(RegexId head, RegexId tail);
  RegexId concat(std::initializer_list<RegexId> parts);
  RegexId any_of(std::vector<RegexId> parts);
  RegexId all_of(std::vector<RegexId> parts);
  RegexId negate(RegexId inner);
  RegexId repeat(RegexId body, uint32_t min, uint32_t max);
  RegexId optional(RegexId body) { return repeat(body, 0, 1); }
  // Digits, then perhaps a point and more digits, whose value times 10^decimals is a multiple of `divisor` > 0. Other
  // rules of number syntax are not checked. (rest and in_fraction: the state after some digits.)
  RegexId multiple(uint32_t divisor, uint32_t decimals, uint32_t rest = 0, bool in_fraction = false);

  bool nullable(RegexId regex) const { return nodes_[regex].nullable; }
  // Whether no text matches. Exact: intersections and complements are searched.
  bool is_empty(RegexId regex);
  // kNothing exactly if no text begins so.
  RegexId derivative(RegexId regex, uint8_t byte_class);
  bool matches(RegexId regex, std::string_view text);

  // Bytes that no expression tells apart are one class.
  size_t classes();
  uint8_t class_of(uint8_t byte) const { return class_of_[byte]; }
  const ByteSet& members(size_t byte_class) const { return members_[byte_class]; }

  // The same expression of another store, here. `memo`: kUnknown for each node of the other store, in the beginning.
  RegexId import(const RegexStore& other, RegexId regex, std::vector<RegexId>& memo);

  size_t size() const { return nodes_.size(); }
  size_t memory() const;
  Budget& budget() { return budget_; }
  static constexpr RegexId kUnknown = UINT32_MAX;

 private:
  enum class Kind : uint8_t { kNothing, kEmpty, kBytes, kConcat, kAny, kAll, kNot, kRepeat, kMultiple };
  struct Node {
    Kind kind;
    bool nullable = false;
    bool complex = false;  // has parts whose emptiness must be searched for
    uint32_t a = 0;  // kBytes: set; kConcat: head; kAny, kAll: first argument; kNot, kRepeat: body; kMultiple: divisor
    uint32_t b = 0;  // kConcat: tail; kAny, kAll: number of arguments; kRepeat: min; kMultiple: rest
    uint32_t c = 0;  // kRepeat: max; kMultiple: decimals * 2 + in_fraction
  };
  enum class Search : uint8_t { kUnknown, kSome, kNone };

  RegexId add(const Node& node, std::span<const RegexId> arguments = {});
  std::span<const RegexId> arguments(const Node& node) const { return {arguments_.data() + node.a, node.b}; }
  RegexId derive(RegexId regex, uint8_t byte_class);
  RegexId cached_derivative(RegexId regex, uint8_t byte_class);
  bool search_is_empty(RegexId regex);
  void update_classes();
  RegexId one_of_sorted(std::span<const std::string> texts, size_t skip);

  Budget budget_;
  std::vector<Node> nodes_;
  std::vector<RegexId> arguments_;
  IdTable node_table_, set_table_;
  std::vector<ByteSet> sets_;
  size_t sets_seen_ = 0;  // by update_classes
  std::vector<uint8_t> class_of_ = std::vector<uint8_t>(256, 0);
  std::vector<ByteSet> members_;
  std::vector<uint32_t> row_of_;  // where each node's derivatives begin in rows_
  std::vector<RegexId> rows_;
  std::vector<Search> searched_;
};

}  // namespace quire::grammar
