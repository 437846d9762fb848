// What a grammar is made of: rules over regexes, special tokens and each other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/regex.h"
#include "quire/types.h"

namespace quire::grammar {

using NodeId = uint32_t;

enum class NodeKind : uint8_t {
  kRegex,     // a: regex
  kSpecial,   // a: index into GrammarParts::specials
  kLayout,    // a regex, blanks of its depth, and regex b; c: a Layout
  kSequence,  // a, then b
  kChoice,    // b nodes at a in the lists
  kRule,      // a: rule
  kRepeat,    // a, at least b and at most c times
  kMembers,   // the rest of object c; b numbers at a in the lists say how far it is
};

// What a kLayout node does to the depth of JSON's brackets.
enum class Layout : uint8_t { kOpens, kWithin, kCloses };

struct Node {
  NodeKind kind = NodeKind::kRegex;
  bool productive = true;  // some text matches; set by GrammarParts::finish
  int8_t closes = 0;       // the brackets that it closes, minus those that it opens
  uint32_t a = 0, b = 0, c = 0;
};

// The members of a JSON object, and their order. Members of one chain come in its order, chains in any order among each
// other, and `other` members anywhere. Its states are made as they are reached, since their number is exponential.
struct ObjectShape {
  struct Member {
    NodeId node = 0;  // name and value
    bool required = false;
    bool operator==(const Member&) const = default;
  };
  using Chain = std::vector<Member>;
  std::vector<Chain> chains = {};
  size_t single = 0;                      // chains of one member, which come first; set by NodeStore::members
  NodeId other = 0;                       // other members; no text matches: there are none
  uint32_t least = 0, most = kUnbounded;  // members
  NodeId comma = 0, close = 0;
  bool operator==(const ObjectShape&) const = default;
};

// Equal nodes are one node.
class NodeStore {
 public:
  NodeId regex(RegexId regex);
  NodeId special(uint32_t index) { return add({.kind = NodeKind::kSpecial, .a = index}); }
  NodeId sequence(NodeId head, NodeId tail);
  NodeId choice(std::vector<NodeId> parts);
  NodeId rule(uint32_t index) { return add({.kind = NodeKind::kRule, .a = index}); }
  NodeId repeat(NodeId body, uint32_t min, uint32_t max);
  NodeId layout(RegexId before, RegexId after, Layout kind);
  // The members after the opening bracket, and the closing one. There is at least one member.
  NodeId members(ObjectShape shape);

  // What a kMembers node may begin with, and the nodes that follow then.
  struct Way {
    NodeId head, rest;
  };
  std::vector<Way> ways(NodeId members);
  // Whether such a node can be completed, given which nodes are productive.
  bool completable(const Node& members) const;
  // The same node of another store, whose shapes are the same.
  NodeId import_members(const NodeStore& other, NodeId id);

  const Node& operator[](NodeId id) const { return nodes_[id]; }
  std::span<const NodeId> choices(const Node& node) const { return {lists_.data() + node.a, node.b}; }
  bool is_regex(NodeId id, RegexId regex) const { return nodes_[id].kind == NodeKind::kRegex && nodes_[id].a == regex; }
  void set_productive(NodeId id, bool productive) { nodes_[id].productive = productive; }
  size_t size() const { return nodes_.size(); }
  size_t memory() const;

 private:
  NodeId add(const Node& node, std::span<const NodeId> list = {});

  struct Remaining {
    uint32_t all = 0, required = 0;
    bool possible = true;
  };
  struct Option {
    size_t chain;
    uint32_t at;  // in the chain
    NodeId node;
  };
  Remaining remaining(const ObjectShape& shape, std::span<const uint32_t> progress) const;
  std::vector<Option> options(const ObjectShape& shape, std::span<const uint32_t> progress, Remaining left) const;
  NodeId add_members(uint32_t shape, std::span<const uint32_t> progress);

  std::vector<Node> nodes_;
  std::vector<NodeId> lists_;
  IdTable table_, shape_table_;
  std::vector<ObjectShape> shapes_;
  size_t shape_bytes_ = 0;
};

// Between tokens of JSON: nothing, a space, or a line end and an indentation of up to four spaces or one tab a level.
// Deeper lines are not indented further than those of kDeepestIndentation.
inline constexpr uint32_t kDeepestIndentation = 32;
RegexId blanks(RegexStore& regexes, uint32_t depth);

// A token that a grammar names.
struct NamedToken {
  std::string spelling = {};                 // how an added token is spelled
  std::optional<TokenId> id = std::nullopt;  // instead: this one, which may be text elsewhere in the grammar
  bool other = false;                        // any token but this one
  bool operator==(const NamedToken&) const = default;
};

struct GrammarParts {
  RegexStore regexes;
  NodeStore nodes = {};
  std::vector<NodeId> rules = {};            // the body of each
  std::vector<std::string> rule_names = {};  // for messages
  std::vector<NamedToken> specials = {};
  NodeId root = 0;

  explicit GrammarParts(const Budget& budget) : regexes(budget) {}

  uint32_t add_rule(std::string name);  // its body is set later
  uint32_t add_special(const NamedToken& token);
  NodeId nothing() { return nodes.regex(kNothing); }
  NodeId empty() { return nodes.regex(kEmpty); }

  // The same as nodes.sequence, choice and repeat, but as one regex where all parts are regexes.
  NodeId fused_sequence(NodeId head, NodeId tail);
  NodeId fused_choice(std::vector<NodeId> parts);
  NodeId fused_repeat(NodeId body, uint32_t min, uint32_t max);

  // Marks what no text matches. Which rules are productive decides whether a node may still be expanded.
  void mark_productive();
  // Marks, then throws quire::Error if no text matches the root, or a rule begins with itself: the automaton could not
  // expand it.
  void finish(NodeId root_node);

 private:
  void check_left_recursion();
};

}  // namespace quire::grammar
