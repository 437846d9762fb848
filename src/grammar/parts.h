// What a grammar is made of: rules over regexes, special tokens and each other.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/regex.h"

namespace quire::grammar {

using NodeId = uint32_t;

enum class NodeKind : uint8_t {
  kRegex,     // a: regex
  kSpecial,   // a: index into GrammarParts::specials
  kSequence,  // a, then b
  kChoice,    // b nodes at a in the lists
  kRule,      // a: rule
  kRepeat,    // a, at least b and at most c times
};

struct Node {
  NodeKind kind = NodeKind::kRegex;
  bool productive = true;  // some text matches; set by GrammarParts::finish
  uint32_t a = 0, b = 0, c = 0;
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

  const Node& operator[](NodeId id) const { return nodes_[id]; }
  std::span<const NodeId> choices(const Node& node) const { return {lists_.data() + node.a, node.b}; }
  bool is_regex(NodeId id, RegexId regex) const { return nodes_[id].kind == NodeKind::kRegex && nodes_[id].a == regex; }
  void set_productive(NodeId id, bool productive) { nodes_[id].productive = productive; }
  size_t size() const { return nodes_.size(); }
  size_t memory() const;

 private:
  NodeId add(const Node& node, std::span<const NodeId> list = {});

  std::vector<Node> nodes_;
  std::vector<NodeId> lists_;
  IdTable table_;
};

struct GrammarParts {
  RegexStore regexes;
  NodeStore nodes = {};
  std::vector<NodeId> rules = {};            // the body of each
  std::vector<std::string> rule_names = {};  // for messages
  std::vector<std::string> specials = {};    // spellings
  NodeId root = 0;

  explicit GrammarParts(const Budget& budget) : regexes(budget) {}

  uint32_t add_rule(std::string name);  // its body is set later
  uint32_t add_special(std::string_view spelling);
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
