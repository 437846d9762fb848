#include "grammar/parts.h"

#include <algorithm>

#include "base/error.h"
#include "base/text/quote.h"

namespace quire::grammar {

namespace {

// How far an object is: whether a member precedes, how many do as far as that matters, and how many members of each chain
// are done with: a bit each for the chains of one member, then a number each.
constexpr size_t kPrecedes = 0, kCount = 1, kPositions = 2;
constexpr size_t kOtherMember = SIZE_MAX;  // instead of a chain

size_t words_of(const ObjectShape& shape) { return (shape.single + 31) / 32; }

uint32_t position(const ObjectShape& shape, std::span<const uint32_t> progress, size_t chain) {
  if (chain < shape.single) return progress[kPositions + chain / 32] >> (chain % 32) & 1;
  return progress[kPositions + words_of(shape) + chain - shape.single];
}

void set_position(const ObjectShape& shape, std::span<uint32_t> progress, size_t chain, uint32_t to) {
  if (chain < shape.single) {
    progress[kPositions + chain / 32] |= 1u << (chain % 32);
  } else {
    progress[kPositions + words_of(shape) + chain - shape.single] = to;
  }
}

}  // namespace

RegexId blanks(RegexStore& regexes, uint32_t depth) {
  constexpr uint32_t kWidest = 4;
  const uint32_t levels = std::min(depth, kDeepestIndentation);
  const RegexId space = regexes.literal(" "), tab = regexes.literal("\t");
  std::vector<RegexId> indentations{kEmpty, regexes.repeat(tab, levels, levels)};
  for (uint32_t width = 1; width <= kWidest; ++width)
    indentations.push_back(regexes.repeat(space, width * levels, width * levels));
  const RegexId line_end = regexes.concat(regexes.optional(regexes.literal("\r")), regexes.literal("\n"));
  return regexes.optional(regexes.any_of({space, regexes.concat(line_end, regexes.any_of(std::move(indentations)))}));
}

size_t NodeStore::memory() const {
  return nodes_.capacity() * sizeof(Node) + lists_.capacity() * sizeof(NodeId) + table_.memory() +
         shape_table_.memory() + shape_bytes_;
}

NodeId NodeStore::add(const Node& node, std::span<const NodeId> list) {
  const bool is_list = node.kind == NodeKind::kChoice || node.kind == NodeKind::kMembers;
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
  const auto closes = static_cast<int8_t>(nodes_[head].closes + nodes_[tail].closes);
  return add({.kind = NodeKind::kSequence, .closes = closes, .a = head, .b = tail});
}

NodeId NodeStore::choice(std::vector<NodeId> parts) {
  std::erase_if(parts, [&](NodeId part) { return is_regex(part, kNothing); });
  std::ranges::sort(parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.empty()) return regex(kNothing);
  if (parts.size() == 1) return parts[0];
  // Parts of JSON that can stand at one place close equally many brackets.
  return add({.kind = NodeKind::kChoice, .closes = nodes_[parts[0]].closes, .b = static_cast<uint32_t>(parts.size())},
             parts);
}

NodeId NodeStore::repeat(NodeId body, uint32_t min, uint32_t max) {
  if (max == 0 || is_regex(body, kEmpty)) return regex(kEmpty);
  if (is_regex(body, kNothing)) return regex(min == 0 ? kEmpty : kNothing);
  if (min == 1 && max == 1) return body;
  return add({.kind = NodeKind::kRepeat, .a = body, .b = min, .c = max});
}

NodeId NodeStore::layout(RegexId before, RegexId after, Layout kind) {
  const auto closes = static_cast<int8_t>(kind == Layout::kOpens ? -1 : kind == Layout::kCloses ? 1 : 0);
  return add({.kind = NodeKind::kLayout, .closes = closes, .a = before, .b = after, .c = static_cast<uint32_t>(kind)});
}

NodeId NodeStore::members(ObjectShape shape) {
  const auto first_longer = std::stable_partition(shape.chains.begin(), shape.chains.end(),
                                                  [](const auto& chain) { return chain.size() == 1; });
  shape.single = static_cast<size_t>(first_longer - shape.chains.begin());
  const size_t longer = shape.chains.size() - shape.single;
  const std::vector<uint32_t> progress(kPositions + words_of(shape) + longer, 0);
  uint64_t hash = mix(mix(mix(shape.other, shape.least), shape.most), shape.close);
  size_t bytes = sizeof(ObjectShape);
  for (const auto& chain : shape.chains) {
    for (const auto& [node, required] : chain) hash = mix(hash, node * uint64_t{2} + (required ? 1 : 0));
    bytes += sizeof(ObjectShape::Chain) + chain.size() * sizeof(ObjectShape::Member);
  }
  const uint32_t id = shape_table_.intern(
      hash, [&](uint32_t other) { return shapes_[other] == shape; },
      [&] {
        shapes_.push_back(std::move(shape));
        shape_bytes_ += bytes;
        return static_cast<uint32_t>(shapes_.size() - 1);
      });
  return add_members(id, progress);
}

NodeId NodeStore::add_members(uint32_t shape, std::span<const uint32_t> progress) {
  return add({.kind = NodeKind::kMembers, .closes = 1, .b = static_cast<uint32_t>(progress.size()), .c = shape},
             progress);
}

NodeId NodeStore::import_members(const NodeStore& other, NodeId id) {
  return add_members(other.nodes_[id].c, other.choices(other.nodes_[id]));
}

NodeStore::Remaining NodeStore::remaining(const ObjectShape& shape, std::span<const uint32_t> progress) const {
  Remaining left;
  for (size_t c = 0; c < shape.chains.size(); ++c) {
    const auto& chain = shape.chains[c];
    for (uint32_t at = position(shape, progress, c); at < chain.size(); ++at) {
      const bool productive = nodes_[chain[at].node].productive;
      left.possible = left.possible && (productive || !chain[at].required);
      left.all += productive ? 1 : 0;
      left.required += chain[at].required ? 1 : 0;
    }
  }
  return left;
}

bool NodeStore::completable(const Node& members) const {
  const ObjectShape& shape = shapes_[members.c];
  const Remaining left = remaining(shape, choices(members));
  return left.possible && left.required <= shape.most && (nodes_[shape.other].productive || left.all >= shape.least);
}

// The members that may be next, such that the object can be completed after them.
std::vector<NodeStore::Option> NodeStore::options(const ObjectShape& shape, std::span<const uint32_t> progress,
                                                  Remaining left) const {
  const bool open = nodes_[shape.other].productive;
  const uint64_t count = uint64_t{progress[kCount]} + 1;
  const auto fits = [&](uint32_t required, uint32_t all) {
    return count + required <= shape.most && (open || count + all >= shape.least);
  };
  std::vector<Option> made;
  for (size_t c = 0; c < shape.chains.size(); ++c) {
    const auto& chain = shape.chains[c];
    uint32_t skipped = 0;
    for (uint32_t at = position(shape, progress, c); at < chain.size(); ++at) {
      const auto& [node, required] = chain[at];
      if (nodes_[node].productive) {
        if (fits(left.required - (required ? 1 : 0), left.all - skipped - 1)) made.push_back({c, at, node});
        ++skipped;
      }
      if (required) break;
    }
  }
  if (open && fits(left.required, left.all)) made.push_back({kOtherMember, 0, shape.other});
  return made;
}

std::vector<NodeStore::Way> NodeStore::ways(NodeId id) {
  const Node node = nodes_[id];
  const ObjectShape& shape = shapes_[node.c];
  std::vector<uint32_t> progress(choices(node).begin(), choices(node).end());
  const Remaining left = remaining(shape, progress);
  const std::vector<Option> next = options(shape, progress, left);
  std::vector<Way> made;
  if (progress[kPrecedes] != 0) {
    if (left.required == 0 && progress[kCount] >= shape.least) made.push_back({shape.close, regex(kEmpty)});
    progress[kPrecedes] = 0;
    if (!next.empty()) made.push_back({shape.comma, add_members(node.c, progress)});
    return made;
  }
  const uint32_t top = shape.most != kUnbounded ? shape.most : std::max(1u, shape.least);
  for (const Option& option : next) {
    std::vector<uint32_t> after = progress;
    after[kPrecedes] = 1;
    after[kCount] = std::min(progress[kCount] + 1, top);
    if (option.chain != kOtherMember) set_position(shape, after, option.chain, option.at + 1);
    made.push_back({option.node, add_members(node.c, after)});
  }
  return made;
}

uint32_t GrammarParts::add_rule(std::string name) {
  rules.push_back(nothing());
  rule_names.push_back(std::move(name));
  return static_cast<uint32_t>(rules.size() - 1);
}

uint32_t GrammarParts::add_special(const NamedToken& token) {
  const auto found = static_cast<size_t>(std::ranges::find(specials, token) - specials.begin());
  if (found == specials.size()) specials.push_back(token);
  return static_cast<uint32_t>(found);
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
    nodes.set_productive(id, node.kind == NodeKind::kSpecial || node.kind == NodeKind::kLayout ||
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
      case NodeKind::kMembers:
        regexes.budget().spend(node.b);
        return nodes.completable(node);
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
      case NodeKind::kLayout:
      case NodeKind::kMembers:
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
