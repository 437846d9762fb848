// The automaton of a grammar and a vocabulary, built as far as it is used. Internal to the folder.
//
// A text's state is a set of threads: a regex that is being matched, and a continuation, the parts of the grammar that
// follow it. Continuations are a stack as a shared list; equal ones are one, and threads with the same regex are joined,
// so ambiguous grammars need no more threads than they have regexes. It is the derivative of the grammar, as regexes
// have one (Might, Darais and Spiewak, "Parsing with derivatives", 2011), kept in the shape of a graph-structured stack.
//
// Masks: tokens that stay within a thread's regex depend on that regex alone and are kept with it. Only tokens that reach
// its end and go on are walked for the whole state. (llguidance divides the work in this way.)
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/limits.h"
#include "grammar/parts.h"
#include "grammar/vocabulary.h"

namespace quire::grammar {

using StateId = uint32_t;
inline constexpr StateId kDead = 0;   // no text follows
inline constexpr StateId kEnded = 1;  // after an end token

struct StateFlags {
  bool accepting = false;
  bool can_go_on = false;  // something may follow
};

// The allowed tokens of a state: a list if that is shorter than the bits.
struct Mask {
  size_t count = 0;
  std::vector<uint32_t> bits;
  std::vector<TokenId> tokens;
};

// All public members lock. Errors leave it usable.
class Automaton {
 public:
  Automaton(const GrammarParts& parts, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits);

  StateId start();
  StateFlags flags(StateId state);
  // Stays where it is as long as the automaton lives.
  const Mask& mask(StateId state);
  // kDead if the token is not allowed.
  StateId advance(StateId state, TokenId token);
  StateId advance_bytes(StateId state, std::string_view text);
  std::string forced_bytes(StateId state, size_t limit);

  // The state of another automaton of the same grammar and vocabulary, here.
  StateId import(Automaton& other, StateId state);

  size_t memory();
  // Over its cache_bytes, or too large a part of what grammars share: matchers should move to a new automaton.
  bool outgrown();

 private:
  using ContId = uint32_t;
  static constexpr uint32_t kUnknown = UINT32_MAX;
  static constexpr size_t kUnlimited = SIZE_MAX;
  static constexpr uint32_t kSpecialBit = uint32_t{1} << 31, kOtherBit = uint32_t{1} << 30;

  struct Thread {
    uint32_t symbol;  // a regex, or kSpecialBit and a token, or both bits and a token: any other one
    ContId then;
    bool operator==(const Thread&) const = default;
  };
  // node, then next; a choice of continuations has node kUnknown, and `next` is where its list begins. 0 is the end.
  struct Cont {
    NodeId node = kUnknown;
    ContId next = 0;
    uint32_t count = 0;
    uint32_t depth = 0;             // how many of JSON's brackets it closes
    uint32_t expansion = kUnknown;  // the state that begins here
  };
  struct State {
    uint32_t threads = 0, count = 0;  // in threads_
    bool accepting = false;
    uint32_t row = kUnknown;  // where its transitions are in rows_
    uint32_t mask = kUnknown;
  };
  // Tokens within a regex, and where in a trie its end is reached.
  struct Crossing {
    const Trie* trie;
    uint32_t node;
    bool operator==(const Crossing&) const = default;
  };
  struct LexemeMask {
    Mask mask;
    std::vector<Crossing> crossings;
  };

  ContId cons(NodeId node, ContId next);
  ContId join(ContId a, ContId b);
  ContId join_all(std::vector<ContId> parts);
  StateId begin(ContId cont);
  RegexId layout(const Node& node, uint32_t depth);
  StateId make_state(std::vector<Thread>& threads, bool accepting);
  void add_state(StateId state, std::vector<Thread>& threads, bool& accepting) const;
  std::span<const Thread> threads(StateId state) const {
    return {threads_.data() + states_[state].threads, states_[state].count};
  }
  uint32_t row(StateId state);
  StateId next(StateId state, uint8_t byte_class);
  StateId step(StateId state, uint8_t byte_class);
  StateId advance_special(StateId state, TokenId token);
  uint32_t symbol_of(const NamedToken& token);
  bool is_text(TokenId token) const;       // here
  bool may_be_other(TokenId token) const;  // matches "any token but …"

  uint32_t make_mask(StateId state);
  const LexemeMask& lexeme_mask(RegexId regex, bool with_crossings);
  size_t plain_depth(RegexId regex, bool with_crossings);
  void walk_lexeme(const Trie& trie, RegexId regex, bool with_crossings, LexemeMask& made);
  void walk(const Trie& trie, uint32_t node, StateId state);
  void allow(TokenId token);
  void allow_special(uint32_t symbol);
  Mask packed_scratch();
  NodeId import_node(const Automaton& other, NodeId node);

  size_t used_memory() const;
  size_t grown() const;  // bytes since the beginning
  void refill();

  std::mutex mutex_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Limits limits_;
  SharedPart shared_;
  RegexStore regexes_;
  NodeStore nodes_;
  std::vector<NodeId> rules_;
  std::vector<uint32_t> specials_;  // the symbol of each
  std::vector<TokenId> named_;      // their tokens, which are not text here
  bool also_text_ = false;          // a token may match as one of them and as text
  size_t base_nodes_;               // those of the grammar; others are made here
  size_t classes_;

  std::vector<Cont> conts_;
  std::vector<ContId> cont_lists_;
  IdTable cont_table_, state_table_;
  std::vector<State> states_;
  std::vector<Thread> threads_;
  std::vector<StateId> rows_;
  std::deque<Mask> masks_;
  std::unordered_map<uint64_t, LexemeMask> lexeme_masks_;
  std::unordered_map<uint64_t, size_t> plain_depths_;
  size_t mask_bytes_ = 0;
  size_t base_memory_ = SIZE_MAX / 2;  // before anything was matched
  StateId start_ = kUnknown;

  std::vector<RegexId> blanks_;  // by depth

  // Plain characters as byte classes, for each state of a UTF-8 decoder: (class, next state).
  std::vector<std::vector<std::pair<uint8_t, uint8_t>>> plain_;

  // Reused.
  std::vector<uint32_t> bits_;
  std::vector<uint32_t> stack_;
};

}  // namespace quire::grammar
