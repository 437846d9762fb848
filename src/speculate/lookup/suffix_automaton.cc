#include "speculate/lookup/suffix_automaton.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace quire {

SuffixAutomaton::SuffixAutomaton() : states_(1), table_(16, kNone) { nested_.reserve(kNested); }

void SuffixAutomaton::reserve(size_t tokens) {
  text_.reserve(tokens);
  states_.reserve(2 * tokens + 1);
  edges_.reserve(tokens);
  grow_table(std::bit_ceil(2 * tokens));
}

size_t SuffixAutomaton::slot_of(Index state, TokenId token) const {
  // Multiplication by the golden ratio mixes upwards, so the upper bits are used.
  const uint64_t key = (uint64_t{state} << 32) | static_cast<uint32_t>(token);
  size_t slot = ((key ^ (key >> 29)) * 0x9E3779B97F4A7C15) >> (64 - std::countr_zero(table_.size()));
  while (table_[slot] != kNone) {
    const Edge& edge = edges_[table_[slot]];
    if (edge.from == state && edge.token == token) break;
    slot = (slot + 1) & (table_.size() - 1);
  }
  return slot;
}

void SuffixAutomaton::grow_table(size_t slots) {
  if (slots <= table_.size()) return;
  table_.assign(slots, kNone);
  for (Index i = 0; i < edges_.size(); ++i) table_[slot_of(edges_[i].from, edges_[i].token)] = i;
}

SuffixAutomaton::Index* SuffixAutomaton::find(Index state, TokenId token) {
  State& from = states_[state];
  if (from.to != kNone && from.token == token) return &from.to;
  if (from.more == kNone) return nullptr;
  const Index edge = table_[slot_of(state, token)];
  return edge == kNone ? nullptr : &edges_[edge].to;
}

void SuffixAutomaton::add(Index state, TokenId token, Index to) {
  State& from = states_[state];
  if (from.to == kNone) {
    from.token = token;
    from.to = to;
    return;
  }
  if (2 * (edges_.size() + 1) > table_.size()) grow_table(2 * table_.size());
  const auto edge = static_cast<Index>(edges_.size());
  table_[slot_of(state, token)] = edge;
  edges_.push_back({state, token, to, from.more});
  from.more = edge;
}

SuffixAutomaton::Index SuffixAutomaton::clone(Index state, uint32_t length) {
  const auto copy = static_cast<Index>(states_.size());
  states_.push_back(states_[state]);
  states_[copy].length = length;
  states_[copy].more = kNone;
  for (Index e = states_[state].more; e != kNone; e = edges_[e].next) add(copy, edges_[e].token, edges_[e].to);
  return copy;
}

void SuffixAutomaton::append(TokenId token) {
  assert(text_.size() < size_t{1} << 30);  // states are numbered in 32 bits
  text_.push_back(token);
  const auto end = static_cast<uint32_t>(text_.size());
  const auto whole = static_cast<Index>(states_.size());
  states_.emplace_back();
  states_[whole].length = end;
  states_[whole].end = end;

  Index suffix = last_;
  Index* edge = nullptr;
  while (suffix != kNone && !(edge = find(suffix, token))) {
    add(suffix, token, whole);
    suffix = states_[suffix].link;
  }
  if (suffix == kNone) {
    states_[whole].link = 0;
  } else if (const Index target = *edge; states_[target].length == states_[suffix].length + 1) {
    states_[whole].link = target;
  } else {
    const Index shorter = clone(target, states_[suffix].length + 1);
    for (; suffix != kNone && (edge = find(suffix, token)) && *edge == target; suffix = states_[suffix].link) {
      *edge = shorter;
    }
    states_[target].link = states_[whole].link = shorter;
  }
  last_ = whole;

  nested_.clear();
  for (Index s = states_[whole].link; s != 0 && nested_.size() < kNested; s = states_[s].link) {
    nested_.push_back({s, states_[s].end});
    states_[s].end = end;
  }
}

SuffixAutomaton::Match SuffixAutomaton::longest() const {
  if (nested_.empty()) return {};
  return {states_[nested_[0].state].length, nested_[0].end};
}

void SuffixAutomaton::matches(size_t min_length, size_t most, std::vector<Match>& out) const {
  assert(min_length >= 1);
  out.clear();
  const auto is_new = [&](TokenId token) {
    return std::none_of(out.begin(), out.end(), [&](const Match& match) { return text_[match.end] == token; });
  };
  for (const auto [index, end] : nested_) {
    const State& state = states_[index];
    if (state.length < min_length || out.size() >= most) return;
    if (is_new(text_[end])) out.push_back({state.length, end});
    // The latest end of the suffix with a token after it is the end of that edge's state.
    while (out.size() < most) {
      uint32_t latest = 0;
      const auto consider = [&](TokenId token, Index to) {
        if (states_[to].end > latest && is_new(token)) latest = states_[to].end;
      };
      consider(state.token, state.to);
      size_t considered = 1;
      for (Index e = state.more; e != kNone && considered < kEdges; e = edges_[e].next, ++considered) {
        consider(edges_[e].token, edges_[e].to);
      }
      if (latest == 0) break;
      out.push_back({state.length, latest - 1});
    }
  }
}

size_t SuffixAutomaton::bytes() const {
  return text_.capacity() * sizeof(TokenId) + states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(Edge) +
         table_.capacity() * sizeof(Index) + nested_.capacity() * sizeof(Nested);
}

}  // namespace quire
