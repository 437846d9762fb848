#include "grammar/automaton.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace quire::grammar {

Automaton::Automaton(const GrammarParts& parts, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits)
    : vocabulary_(std::move(vocabulary)),
      limits_(limits),
      shared_(limits.shared),
      regexes_(parts.regexes),
      nodes_(parts.nodes),
      rules_(parts.rules),
      base_nodes_(parts.nodes.size()) {
  refill();
  for (const NamedToken& token : parts.specials) specials_.push_back(symbol_of(token));
  classes_ = regexes_.classes();
  conts_.push_back({});   // the end
  states_.push_back({});  // kDead
  states_.push_back({});  // kEnded
  start_ = begin(cons(parts.root, 0));

  // A decoder of the characters that stand for themselves in a JSON string (Unicode's table 3-7 of well-formed UTF-8).
  struct Range {
    uint8_t state, first, last, next;
  };
  static constexpr Range kRanges[] = {{0, 0x20, 0x21, 0}, {0, 0x23, 0x5B, 0}, {0, 0x5D, 0x7F, 0}, {0, 0xC2, 0xDF, 1},
                                      {0, 0xE0, 0xE0, 4}, {0, 0xE1, 0xEC, 2}, {0, 0xED, 0xED, 5}, {0, 0xEE, 0xEF, 2},
                                      {0, 0xF0, 0xF0, 6}, {0, 0xF1, 0xF3, 3}, {0, 0xF4, 0xF4, 7}, {1, 0x80, 0xBF, 0},
                                      {2, 0x80, 0xBF, 1}, {3, 0x80, 0xBF, 2}, {4, 0xA0, 0xBF, 1}, {5, 0x80, 0x9F, 1},
                                      {6, 0x90, 0xBF, 2}, {7, 0x80, 0x8F, 2}};
  plain_.resize(8);
  for (const Range& range : kRanges) {
    auto& to = plain_[range.state];
    for (unsigned byte = range.first; byte <= range.last; ++byte)
      to.emplace_back(regexes_.class_of(static_cast<uint8_t>(byte)), range.next);
    std::ranges::sort(to);
    to.erase(std::unique(to.begin(), to.end()), to.end());
  }
  bits_.resize(vocabulary_->mask_words());
  base_memory_ = used_memory();
}

uint32_t Automaton::symbol_of(const NamedToken& token) {
  if (token.id && static_cast<size_t>(*token.id) >= vocabulary_->size())
    throw invalid("the grammar names token {}, but the vocabulary has {} tokens", *token.id, vocabulary_->size());
  const std::optional<TokenId> id = token.id ? token.id : vocabulary_->find_special(token.spelling);
  if (!id && token.other)
    throw invalid("the grammar names any token but {}, which the vocabulary does not have", token.spelling);
  if (!id) return regexes_.literal(token.spelling);
  if (!token.id) named_.push_back(*id);
  also_text_ = also_text_ || token.id || token.other;
  return kSpecialBit | (token.other ? kOtherBit : 0) | static_cast<uint32_t>(*id);
}

// Each public call may do so much.
void Automaton::refill() {
  shared_.report(grown());
  regexes_.budget() = {.steps = limits_.mask_steps, .nodes = regexes_.size() + limits_.cache_bytes / 64, .stop = {}};
}

size_t Automaton::used_memory() const {
  return regexes_.memory() + nodes_.memory() + conts_.capacity() * sizeof(Cont) + cont_table_.memory() +
         state_table_.memory() + states_.capacity() * sizeof(State) + threads_.capacity() * sizeof(Thread) +
         (rows_.capacity() + cont_lists_.capacity()) * sizeof(uint32_t) + plain_depths_.size() * 40 + mask_bytes_;
}

size_t Automaton::memory() {
  const std::scoped_lock lock(mutex_);
  return used_memory();
}

size_t Automaton::grown() const {
  const size_t now = used_memory();
  return now - std::min(now, base_memory_);
}

bool Automaton::outgrown() {
  const std::scoped_lock lock(mutex_);
  shared_.report(grown());
  return grown() > limits_.cache_bytes || shared_.too_large();
}

StateId Automaton::start() {
  const std::scoped_lock lock(mutex_);
  return start_;
}

StateFlags Automaton::flags(StateId state) {
  const std::scoped_lock lock(mutex_);
  return {.accepting = states_[state].accepting || state == kEnded, .can_go_on = states_[state].count > 0};
}

Automaton::ContId Automaton::cons(NodeId node, ContId next) {
  const uint64_t hash = mix(mix(1, node), next);
  return cont_table_.intern(
      hash, [&](uint32_t id) { return conts_[id].node == node && conts_[id].next == next; },
      [&] {
        const int64_t depth = int64_t{conts_[next].depth} + nodes_[node].closes;
        conts_.push_back({.node = node, .next = next, .depth = static_cast<uint32_t>(std::max<int64_t>(depth, 0))});
        return static_cast<uint32_t>(conts_.size() - 1);
      });
}

Automaton::ContId Automaton::join(ContId a, ContId b) { return a == b ? a : join_all({a, b}); }

// Continuations that begin with the same node are joined after it.
Automaton::ContId Automaton::join_all(std::vector<ContId> parts) {
  std::vector<ContId> flat;
  for (const ContId part : parts) {
    const Cont& cont = conts_[part];
    if (cont.count == 0) {
      flat.push_back(part);
    } else {
      flat.insert(flat.end(), cont_lists_.begin() + cont.next, cont_lists_.begin() + cont.next + cont.count);
    }
  }
  regexes_.budget().spend(flat.size());
  std::ranges::sort(flat,
                    [&](ContId a, ContId b) { return std::pair(conts_[a].node, a) < std::pair(conts_[b].node, b); });
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  std::vector<ContId> joined;
  for (size_t i = 0; i < flat.size();) {
    const NodeId node = conts_[flat[i]].node;
    std::vector<ContId> nexts;
    size_t end = i;
    for (; end < flat.size() && conts_[flat[end]].node == node; ++end) nexts.push_back(conts_[flat[end]].next);
    joined.push_back(end == i + 1 ? flat[i] : cons(node, join_all(std::move(nexts))));
    i = end;
  }
  if (joined.size() == 1) return joined[0];
  std::ranges::sort(joined);
  uint64_t hash = 2;
  uint32_t depth = 0;  // the same of all, unless texts around JSON have brackets, too
  for (const ContId part : joined) {
    hash = mix(hash, part);
    depth = std::max(depth, conts_[part].depth);
  }
  return cont_table_.intern(
      hash,
      [&](uint32_t id) {
        const Cont& cont = conts_[id];
        return cont.node == kUnknown && cont.count == joined.size() &&
               std::equal(joined.begin(), joined.end(), cont_lists_.begin() + cont.next);
      },
      [&] {
        conts_.push_back({.node = kUnknown,
                          .next = static_cast<uint32_t>(cont_lists_.size()),
                          .count = static_cast<uint32_t>(joined.size()),
                          .depth = depth});
        cont_lists_.insert(cont_lists_.end(), joined.begin(), joined.end());
        return static_cast<uint32_t>(conts_.size() - 1);
      });
}

// The state before a continuation: its first symbols.
StateId Automaton::begin(ContId root) {
  if (conts_[root].expansion != kUnknown) return conts_[root].expansion;
  struct Item {
    NodeId node;  // kUnknown: the continuation alone
    ContId then;
  };
  std::vector<Item> work{{kUnknown, root}};
  std::vector<Thread> found;
  std::unordered_set<uint64_t> visited;
  bool accepting = false;
  while (!work.empty()) {
    const auto [at, then] = work.back();
    work.pop_back();
    regexes_.budget().spend();
    if (at == kUnknown) {
      const Cont cont = conts_[then];
      if (then == 0) {
        accepting = true;
      } else if (cont.count == 0) {
        work.push_back({cont.node, cont.next});
      } else {
        for (uint32_t i = 0; i < cont.count; ++i) work.push_back({kUnknown, cont_lists_[cont.next + i]});
      }
      continue;
    }
    const Node node = nodes_[at];
    if (!node.productive) continue;
    if (node.kind >= NodeKind::kChoice && !visited.insert(uint64_t{at} << 32 | then).second) continue;
    switch (node.kind) {
      case NodeKind::kRegex:
        if (node.a != kEmpty) found.push_back({node.a, then});
        if (regexes_.nullable(node.a)) work.push_back({kUnknown, then});
        break;
      case NodeKind::kSpecial:
        found.push_back({specials_[node.a], then});
        break;
      case NodeKind::kLayout:
        found.push_back({layout(node, conts_[then].depth), then});
        break;
      case NodeKind::kSequence:
        work.push_back({node.a, cons(node.b, then)});
        break;
      case NodeKind::kChoice:
        for (const NodeId part : nodes_.choices(node)) work.push_back({part, then});
        break;
      case NodeKind::kRule:
        work.push_back({rules_[node.a], then});
        break;
      case NodeKind::kRepeat: {
        if (node.b == 0) work.push_back({kUnknown, then});
        const NodeId rest =
            nodes_.repeat(node.a, node.b == 0 ? 0 : node.b - 1, node.c == kUnbounded ? kUnbounded : node.c - 1);
        work.push_back({node.a, nodes_.is_regex(rest, kEmpty) ? then : cons(rest, then)});
        break;
      }
      case NodeKind::kMembers:
        for (const auto& [head, rest] : nodes_.ways(at)) {
          regexes_.budget().spend();
          work.push_back({head, nodes_.is_regex(rest, kEmpty) ? then : cons(rest, then)});
        }
        break;
    }
  }
  const StateId state = make_state(found, accepting);
  conts_[root].expansion = state;
  return state;
}

RegexId Automaton::layout(const Node& node, uint32_t depth) {
  depth = std::min(depth, kDeepestIndentation);
  for (auto next = static_cast<uint32_t>(blanks_.size()); next <= depth; ++next)
    blanks_.push_back(blanks(regexes_, next));
  return regexes_.concat({node.a, blanks_[depth], node.b});
}

StateId Automaton::make_state(std::vector<Thread>& found, bool accepting) {
  std::ranges::sort(found, [](const Thread& a, const Thread& b) {
    return std::pair(a.symbol, a.then) < std::pair(b.symbol, b.then);
  });
  size_t kept = 0;
  for (size_t i = 0; i < found.size();) {
    Thread thread = found[i];
    for (++i; i < found.size() && found[i].symbol == thread.symbol; ++i) thread.then = join(thread.then, found[i].then);
    found[kept++] = thread;
  }
  found.resize(kept);
  if (found.empty() && !accepting) return kDead;
  uint64_t hash = accepting ? 1 : 0;
  for (const Thread& thread : found) hash = mix(mix(hash, thread.symbol), thread.then);
  regexes_.budget().spend(1 + found.size());
  return state_table_.intern(
      hash, [&](uint32_t id) { return states_[id].accepting == accepting && std::ranges::equal(threads(id), found); },
      [&] {
        if (grown() > 3 * limits_.cache_bytes) regexes_.budget().exhausted();
        states_.push_back({.threads = static_cast<uint32_t>(threads_.size()),
                           .count = static_cast<uint32_t>(found.size()),
                           .accepting = accepting});
        threads_.insert(threads_.end(), found.begin(), found.end());
        return static_cast<uint32_t>(states_.size() - 1);
      });
}

void Automaton::add_state(StateId state, std::vector<Thread>& found, bool& accepting) const {
  const auto more = threads(state);
  found.insert(found.end(), more.begin(), more.end());
  accepting = accepting || states_[state].accepting;
}

uint32_t Automaton::row(StateId state) {
  if (states_[state].row == kUnknown) {
    states_[state].row = static_cast<uint32_t>(rows_.size());
    rows_.resize(rows_.size() + classes_, kUnknown);
  }
  return states_[state].row;
}

StateId Automaton::next(StateId state, uint8_t byte_class) {
  const uint32_t at = row(state) + byte_class;
  if (rows_[at] == kUnknown) {
    const StateId made = step(state, byte_class);
    rows_[at] = made;
  }
  return rows_[at];
}

StateId Automaton::step(StateId state, uint8_t byte_class) {
  std::vector<Thread> found;
  bool accepting = false;
  const State from = states_[state];
  for (uint32_t i = 0; i < from.count; ++i) {
    const Thread thread = threads_[from.threads + i];
    if (thread.symbol & kSpecialBit) continue;
    const RegexId rest = regexes_.derivative(thread.symbol, byte_class);
    if (rest == kNothing) continue;
    if (rest != kEmpty) found.push_back({rest, thread.then});
    if (regexes_.nullable(rest)) add_state(begin(thread.then), found, accepting);
  }
  return make_state(found, accepting);
}

StateId Automaton::advance_special(StateId state, TokenId token) {
  std::vector<Thread> found;
  bool accepting = false;
  const State from = states_[state];
  for (uint32_t i = 0; i < from.count; ++i) {
    const Thread thread = threads_[from.threads + i];
    if ((thread.symbol & kSpecialBit) == 0) continue;
    const bool same = (thread.symbol & ~(kSpecialBit | kOtherBit)) == static_cast<uint32_t>(token);
    const bool matches = (thread.symbol & kOtherBit) != 0 ? !same && may_be_other(token) : same;
    if (matches) add_state(begin(thread.then), found, accepting);
  }
  return make_state(found, accepting);
}

bool Automaton::is_text(TokenId token) const {
  return !vocabulary_->is_special(token) && std::ranges::find(named_, token) == named_.end();
}

bool Automaton::may_be_other(TokenId token) const {
  const auto end = vocabulary_->end_tokens();
  if (std::ranges::find(end, token) != end.end()) return false;
  return std::ranges::find(named_, token) != named_.end() || !vocabulary_->bytes(token).empty();
}

StateId Automaton::advance(StateId state, TokenId token) {
  const std::scoped_lock lock(mutex_);
  refill();
  const bool text = is_text(token);
  const StateId special = !text || also_text_ ? advance_special(state, token) : kDead;
  if (!text) {
    if (special != kDead) return special;
    const auto end = vocabulary_->end_tokens();
    return states_[state].accepting && std::ranges::find(end, token) != end.end() ? kEnded : kDead;
  }
  const std::string_view bytes = vocabulary_->bytes(token);
  StateId plain = bytes.empty() ? kDead : state;
  for (const char c : bytes) plain = next(plain, regexes_.class_of(static_cast<uint8_t>(c)));
  if (special == kDead || plain == kDead) return special == kDead ? plain : special;
  std::vector<Thread> found;
  bool accepting = false;
  add_state(special, found, accepting);
  add_state(plain, found, accepting);
  return make_state(found, accepting);
}

StateId Automaton::advance_bytes(StateId state, std::string_view text) {
  const std::scoped_lock lock(mutex_);
  for (const char c : text) {
    refill();
    state = next(state, regexes_.class_of(static_cast<uint8_t>(c)));
    if (state == kDead) break;
  }
  return state;
}

std::string Automaton::forced_bytes(StateId state, size_t limit) {
  const std::scoped_lock lock(mutex_);
  refill();
  std::string forced;
  while (forced.size() < limit && !states_[state].accepting) {
    const auto here = threads(state);
    if (std::ranges::any_of(here, [](const Thread& thread) { return (thread.symbol & kSpecialBit) != 0; })) break;
    StateId only = kDead;
    size_t only_class = 0, choices = 0;
    for (size_t c = 0; c < classes_ && choices < 2; ++c) {
      const StateId to = next(state, static_cast<uint8_t>(c));
      if (to == kDead) continue;
      ++choices;
      only = to;
      only_class = c;
    }
    if (choices != 1) break;
    unsigned byte = 0, members = 0;
    for (unsigned b = 0; b < 256; ++b) {
      if (!regexes_.members(only_class).has(b)) continue;
      byte = b;
      ++members;
    }
    if (members != 1) break;
    forced.push_back(static_cast<char>(byte));
    state = only;
  }
  return forced;
}

NodeId Automaton::import_node(const Automaton& other, NodeId node) {
  if (node < base_nodes_) return node;
  const Node made = other.nodes_[node];  // one of those that `other` made itself
  if (made.kind == NodeKind::kMembers) return nodes_.import_members(other.nodes_, node);
  return nodes_.repeat(made.a, made.b, made.c);
}

StateId Automaton::import(Automaton& other, StateId state) {
  const std::scoped_lock lock(mutex_, other.mutex_);
  refill();
  if (state == kDead || state == kEnded) return state;
  std::vector<RegexId> regexes(other.regexes_.size(), RegexStore::kUnknown);
  std::vector<ContId> conts(other.conts_.size(), kUnknown);
  conts[0] = 0;
  std::vector<Thread> found;
  for (const Thread& thread : other.threads(state)) {
    std::vector<ContId> work{thread.then};
    while (!work.empty()) {  // parts before wholes
      const ContId at = work.back();
      const Cont& cont = other.conts_[at];
      std::vector<ContId> parts{cont.next};
      if (cont.count > 0)
        parts.assign(other.cont_lists_.begin() + cont.next, other.cont_lists_.begin() + cont.next + cont.count);
      const size_t before = work.size();
      if (conts[at] == kUnknown) {
        std::ranges::copy_if(parts, std::back_inserter(work), [&](ContId part) { return conts[part] == kUnknown; });
      }
      if (work.size() > before) continue;
      work.pop_back();
      if (conts[at] != kUnknown) continue;
      for (ContId& part : parts) part = conts[part];
      conts[at] = cont.count > 0 ? join_all(std::move(parts)) : cons(import_node(other, cont.node), parts[0]);
    }
    found.push_back(
        {(thread.symbol & kSpecialBit) ? thread.symbol : regexes_.import(other.regexes_, thread.symbol, regexes),
         conts[thread.then]});
  }
  return make_state(found, other.states_[state].accepting);
}

}  // namespace quire::grammar
