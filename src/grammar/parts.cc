#include "grammar/parts.h"

#include <algorithm>

#include "base/error.h"
#include "base/quote.h"

namespace quire::grammar {

size_t NodeStore::memory() const {
  return nodes_.capacity() * sizeof(Node) + lists_.capacity() * sizeof(NodeId) + table_.memory();
}

NodeId NodeStore::add(const Node& node, std::span<const NodeId> list) {
  const bool is_list = node.kind == NodeKind::kChoice;
  uint64_t hash = mix(static_cast<uint64_t>(node.kind), is_list ? list.size() : node.a);
  hash = mix(mix(hash, node.b), node.c);
  for (const NodeId part : list) hash = mix(hash, part);
  return table_.intern(
      hash,
      [&](uint32_t id) {
        const Node& other = nodes_[id];
        if (other.kind != node.kind || other.b != node.b || other.c != node.c) return false;
        return is_list ? std::ranges::equal(choices(other), list) : other.a == node.a;
      },
      [&] {
        nodes_.push_back(node);
        if (is_list) {
          nodes_.back().a = static_cast<uint32_t>(lists_.size());
          lists_.insert(lists_.end(), list.begin(), list.end());
        }
        return static_cast<uint32_t>(nodes_.size() - 1);
      });
}

NodeId NodeStore::regex(RegexId regex) { return add({.kind = NodeKind::kRegex, .a = regex}); }

NodeId NodeStore::sequence(NodeId head, NodeId tail) {
  if (is_regex(head, kNothing) || is_regex(tail, kEmpty)) return head;
  if (is_regex(tail, kNothing) || is_regex(head, kEmpty)) return tail;
  if (nodes_[head].kind == NodeKind::kSequence) {
    std::vector<NodeId> heads;
    for (; nodes_[head].kind == NodeKind::kSequence; head = nodes_[head].b) heads.push_back(nodes_[head].a);
    NodeId made = sequence(head, tail);
    for (; !heads.empty(); heads.pop_back()) made = sequence(heads.back(), made);
    return made;
  }
  return add({.kind = NodeKind::kSequence, .a = head, .b = tail});
}

NodeId NodeStore::choice(std::vector<NodeId> parts) {
  std::erase_if(parts, [&](NodeId part) { return is_regex(part, kNothing); });
  std::ranges::sort(parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.empty()) return regex(kNothing);
  if (parts.size() == 1) return parts[0];
  return add({.kind = NodeKind::kChoice, .b = static_cast<uint32_t>(parts.size())}, parts);
}

NodeId NodeStore::repeat(NodeId body, uint32_t min, uint32_t max) {
  if (max == 0 || is_regex(body, kEmpty)) return regex(kEmpty);
  if (is_regex(body, kNothing)) return regex(min == 0 ? kEmpty : kNothing);
  if (min == 1 && max == 1) return body;
  return add({.kind = NodeKind::kRepeat, .a = body, .b = min, .c = max});
}

uint32_t GrammarParts::add_rule(std::string name) {
  rules.push_back(nothing());
  rule_names.push_back(std::move(name));
  return static_cast<uint32_t>(rules.size() - 1);
}

uint32_t GrammarParts::add_special(std::string_view spelling) {
  const auto found = std::ranges::find(specials, spelling);
  if (found == specials.end()) specials.emplace_back(spelling);
  return static_cast<uint32_t>(std::ranges::find(specials, spelling) - specials.begin());
}

NodeId GrammarParts::fused_sequence(NodeId head, NodeId tail) {
  const Node h = nodes[head], t = nodes[tail];
  if (h.kind == NodeKind::kRegex && t.kind == NodeKind::kRegex) return nodes.regex(regexes.concat(h.a, t.a));
  if (h.kind == NodeKind::kRegex && t.kind == NodeKind::kSequence && nodes[t.a].kind == NodeKind::kRegex)
    return nodes.sequence(nodes.regex(regexes.concat(h.a, nodes[t.a].a)), t.b);
  return nodes.sequence(head, tail);
}

NodeId GrammarParts::fused_choice(std::vector<NodeId> parts) {
  std::vector<RegexId> plain;
  std::vector<NodeId> others;
  for (const NodeId part : parts) {
    if (nodes[part].kind == NodeKind::kRegex) {
      plain.push_back(nodes[part].a);
    } else {
      others.push_back(part);
    }
  }
  if (!plain.empty()) others.push_back(nodes.regex(regexes.any_of(std::move(plain))));
  return nodes.choice(std::move(others));
}

NodeId GrammarParts::fused_repeat(NodeId body, uint32_t min, uint32_t max) {
  if (nodes[body].kind == NodeKind::kRegex) return nodes.regex(regexes.repeat(nodes[body].a, min, max));
  return nodes.repeat(body, min, max);
}

void GrammarParts::mark_productive() {
  for (NodeId id = 0; id < nodes.size(); ++id) {
    const Node& node = nodes[id];
    nodes.set_productive(id, node.kind == NodeKind::kSpecial ||
                                 (node.kind == NodeKind::kRegex && !regexes.is_empty(node.a)) ||
                                 (node.kind == NodeKind::kRepeat && node.b == 0));
  }
  const auto follows = [&](const Node& node) {
    switch (node.kind) {
      case NodeKind::kSequence:
        return nodes[node.a].productive && nodes[node.b].productive;
      case NodeKind::kChoice:
        return std::ranges::any_of(nodes.choices(node), [&](NodeId part) { return nodes[part].productive; });
      case NodeKind::kRule:
        return nodes[rules[node.a]].productive;
      case NodeKind::kRepeat:
        return nodes[node.a].productive;
      default:
        return false;
    }
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId id = 0; id < nodes.size(); ++id) {
      regexes.budget().spend();
      if (nodes[id].productive || !follows(nodes[id])) continue;
      nodes.set_productive(id, true);
      changed = true;
    }
  }
}

void GrammarParts::finish(NodeId root_node) {
  root = root_node;
  mark_productive();
  if (!nodes[root].productive) throw invalid("no text satisfies the grammar");
  check_left_recursion();
}

// A rule that reaches itself before any byte is read, with something left to match after it, would be expanded for
// ever. Nodes of one strongly connected component (Tarjan) of "may begin with" reach each other.
void GrammarParts::check_left_recursion() {
  const size_t n = nodes.size();
  std::vector<bool> nullable(n, false);
  const auto is_nullable = [&](const Node& node) -> bool {
    switch (node.kind) {
      case NodeKind::kRegex:
        return regexes.nullable(node.a);
      case NodeKind::kSpecial:
        return false;
      case NodeKind::kSequence:
        return nullable[node.a] && nullable[node.b];
      case NodeKind::kChoice:
        return std::ranges::any_of(nodes.choices(node), [&](NodeId p) { return nullable[p]; });
      case NodeKind::kRule:
        return nullable[rules[node.a]];
      case NodeKind::kRepeat:
        return node.b == 0 || nullable[node.a];
    }
    return false;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId id = 0; id < n; ++id) {
      regexes.budget().spend();
      if (nullable[id] || !is_nullable(nodes[id])) continue;
      nullable[id] = true;
      changed = true;
    }
  }
  struct Edge {
    NodeId to;
    bool leaves_rest;  // something is left to match after `to`
  };
  const auto edges = [&](const Node& node) {
    std::vector<Edge> made;
    switch (node.kind) {
      case NodeKind::kSequence:
        made.push_back({node.a, true});
        if (nullable[node.a]) made.push_back({node.b, false});
        break;
      case NodeKind::kChoice:
        for (const NodeId part : nodes.choices(node)) made.push_back({part, false});
        break;
      case NodeKind::kRule:
        made.push_back({rules[node.a], false});
        break;
      case NodeKind::kRepeat:
        made.push_back({node.a, node.c > 1});
        break;
      default:
        break;
    }
    return made;
  };
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> order(n, kNone), low(n, kNone), component(n, kNone);
  struct Frame {
    NodeId node;
    std::vector<Edge> edges;
    size_t next = 0;
  };
  std::vector<Frame> frames;
  std::vector<NodeId> open;
  uint32_t count = 0, components = 0;
  const auto enter = [&](NodeId id) {
    order[id] = low[id] = count++;
    open.push_back(id);
    frames.push_back({id, edges(nodes[id])});
  };
  for (NodeId start = 0; start < n; ++start) {
    if (order[start] != kNone) continue;
    enter(start);
    while (!frames.empty()) {
      Frame& frame = frames.back();
      const NodeId id = frame.node;
      if (frame.next < frame.edges.size()) {
        const NodeId to = frame.edges[frame.next++].to;
        if (order[to] == kNone) {
          enter(to);
        } else if (component[to] == kNone) {
          low[id] = std::min(low[id], order[to]);
        }
        continue;
      }
      if (low[id] == order[id]) {
        while (component[id] == kNone) {
          component[open.back()] = components;
          open.pop_back();
        }
        ++components;
      }
      frames.pop_back();
      if (!frames.empty()) low[frames.back().node] = std::min(low[frames.back().node], low[id]);
    }
  }
  for (NodeId id = 0; id < n; ++id) {
    for (const Edge& edge : edges(nodes[id])) {
      if (!edge.leaves_rest || component[edge.to] != component[id]) continue;
      for (size_t rule = 0; rule < rules.size(); ++rule) {
        if (component[rules[rule]] == component[id])
          throw unsupported("rule {} begins with itself (left recursion); write it as a repetition",
                            quote(rule_names[rule]));
      }
      throw unsupported("a rule begins with itself (left recursion)");
    }
  }
}

}  // namespace quire::grammar
