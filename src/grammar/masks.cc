// The masks of an Automaton.
#include <algorithm>
#include <bit>
#include <unordered_set>
#include <utility>

#include "grammar/automaton.h"

namespace quire::grammar {

const Mask& Automaton::mask(StateId state) {
  const std::scoped_lock lock(mutex_);
  if (states_[state].mask == kUnknown) {
    refill();
    const uint32_t made = make_mask(state);
    states_[state].mask = made;
  }
  return masks_[states_[state].mask];
}

void Automaton::allow(TokenId token) {
  for (; token != kNoToken; token = vocabulary_->twin(token))
    bits_[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
}

void Automaton::allow_special(uint32_t symbol) {
  const auto named = static_cast<TokenId>(symbol & ~(kSpecialBit | kOtherBit));
  const auto set = [&](TokenId token) { bits_[static_cast<size_t>(token) / 32] |= 1u << (token % 32); };
  if ((symbol & kOtherBit) == 0) return set(named);
  regexes_.budget().spend(vocabulary_->size() / 64);
  for (TokenId token = 0; std::cmp_less(token, vocabulary_->size()); ++token) {
    if (token != named && may_be_other(token)) set(token);
  }
}

// What is in bits_, which is cleared.
Mask Automaton::packed_scratch() {
  Mask mask;
  for (const uint32_t word : bits_) mask.count += static_cast<size_t>(std::popcount(word));
  if (mask.count < bits_.size()) {
    mask.tokens.reserve(mask.count);
    for (size_t i = 0; i < bits_.size(); ++i) {
      for (uint32_t word = bits_[i]; word != 0; word &= word - 1)
        mask.tokens.push_back(static_cast<TokenId>(i * 32) + std::countr_zero(word));
    }
  } else {
    mask.bits = bits_;
  }
  mask_bytes_ += sizeof(Mask) + (mask.bits.size() + mask.tokens.size()) * 4;
  std::ranges::fill(bits_, 0u);
  return mask;
}

uint32_t Automaton::make_mask(StateId state) {
  struct Part {
    const LexemeMask* lexeme;
    StateId after;
  };
  std::ranges::fill(bits_, 0u);  // an error may have left some
  std::vector<Part> parts;
  const State from = states_[state];
  for (uint32_t i = 0; i < from.count; ++i) {
    const Thread thread = threads_[from.threads + i];
    if (thread.symbol & kSpecialBit) continue;
    const StateId after = begin(thread.then);
    const bool crosses =
        std::ranges::any_of(threads(after), [](const Thread& t) { return (t.symbol & kSpecialBit) == 0; });
    parts.push_back({&lexeme_mask(thread.symbol, crosses), after});
  }
  for (const Part& part : parts) {
    const Mask& mask = part.lexeme->mask;
    for (size_t w = 0; w < mask.bits.size(); ++w) bits_[w] |= mask.bits[w];
    for (const TokenId token : mask.tokens) bits_[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    for (const Crossing& crossing : part.lexeme->crossings) walk(*crossing.trie, crossing.node, part.after);
  }
  for (const TokenId token : named_) bits_[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
  for (const Thread& thread : threads(state)) {
    if (thread.symbol & kSpecialBit) allow_special(thread.symbol);
  }
  if (from.accepting) {
    for (const TokenId token : vocabulary_->end_tokens()) allow(token);
  }
  masks_.push_back(packed_scratch());
  return static_cast<uint32_t>(masks_.size() - 1);
}

// Allows the tokens below a node of the trie that the state takes.
void Automaton::walk(const Trie& trie, uint32_t node, StateId state) {
  const size_t base = trie[node].depth;
  const uint32_t end = trie[node].end;
  stack_.assign(1, state);
  for (uint32_t i = node + 1; i < end;) {
    const TrieNode& at = trie[i];
    stack_.resize(at.depth - base);
    regexes_.budget().spend();
    const StateId to = next(stack_.back(), regexes_.class_of(at.byte));
    if (to == kDead) {
      i = at.end;
      continue;
    }
    if (at.token != kNoToken) allow(at.token);
    stack_.push_back(to);
    ++i;
  }
}

const Automaton::LexemeMask& Automaton::lexeme_mask(RegexId regex, bool with_crossings) {
  const uint64_t key = uint64_t{regex} << 1 | (with_crossings ? 1u : 0u);
  if (const auto found = lexeme_masks_.find(key); found != lexeme_masks_.end()) return found->second;
  std::ranges::fill(bits_, 0u);
  LexemeMask made;
  const auto slices = vocabulary_->slices();
  const Trie* trie = &vocabulary_->trie();
  if (!slices.empty()) {
    const size_t depth = plain_depth(regex, with_crossings);
    for (const Vocabulary::Slice& slice : slices) {
      if (slice.max_characters > depth) break;
      trie = &slice.others;
      bits_ = slice.mask;
    }
  }
  walk_lexeme(*trie, regex, with_crossings, made);
  made.mask = packed_scratch();
  made.crossings.shrink_to_fit();
  mask_bytes_ += sizeof(LexemeMask) + 64 + made.crossings.size() * sizeof(Crossing);
  return lexeme_masks_.emplace(key, std::move(made)).first->second;
}

void Automaton::walk_lexeme(const Trie& trie, RegexId regex, bool with_crossings, LexemeMask& made) {
  const auto end = static_cast<uint32_t>(trie.size());
  stack_.assign(1, regex);
  for (uint32_t i = 0; i < end;) {
    const TrieNode& at = trie[i];
    stack_.resize(at.depth);
    regexes_.budget().spend();
    const RegexId rest = regexes_.derivative(stack_.back(), regexes_.class_of(at.byte));
    if (rest == kNothing) {
      i = at.end;
      continue;
    }
    if (at.token != kNoToken) allow(at.token);
    if (with_crossings && at.end > i + 1 && regexes_.nullable(rest)) made.crossings.push_back({&trie, i});
    stack_.push_back(rest);
    ++i;
  }
}

// A number of characters such that every plain text of at most so many stays within the regex and, where the mask needs
// to know, does not reach its end. kUnlimited: of any length. Texts with a bounded length have a state for each character,
// so one search looks further than needed and keeps what it learns of the states on the way.
size_t Automaton::plain_depth(RegexId regex, bool with_crossings) {
  constexpr size_t kEnough = 16, kFar = 64;  // the last slice but one has tokens of up to 16 characters
  constexpr size_t kMostStates = 2048;
  const auto key = [&](RegexId at) { return uint64_t{at} << 1 | (with_crossings ? 1u : 0u); };
  if (const auto known = plain_depths_.find(key(regex)); known != plain_depths_.end() && known->second >= kEnough)
    return known->second;
  std::vector<RegexId> level{regex};
  std::vector<std::pair<RegexId, size_t>> reached{{regex, 0}};
  std::unordered_set<uint64_t> visited{uint64_t{regex} * 8};
  size_t depth = 0;
  bool stays = true;
  while (stays && depth < kFar && !level.empty() && visited.size() < kMostStates) {
    std::vector<RegexId> following;
    std::vector<std::pair<RegexId, uint8_t>> work;  // within a character
    for (const RegexId begin : level) work.emplace_back(begin, uint8_t{0});
    while (stays && !work.empty()) {
      const auto [at, decoder] = work.back();
      work.pop_back();
      for (const auto& [byte_class, decoder_to] : plain_[decoder]) {
        regexes_.budget().spend();
        const RegexId to = regexes_.derivative(at, byte_class);
        stays = to != kNothing && !(with_crossings && regexes_.nullable(to));
        if (!stays) break;
        if (!visited.insert(uint64_t{to} * 8 + decoder_to).second) continue;
        if (decoder_to == 0) {
          following.push_back(to);
        } else {
          work.emplace_back(to, decoder_to);
        }
      }
    }
    if (!stays) break;
    ++depth;
    for (const RegexId to : following) reached.emplace_back(to, depth);
    level = std::move(following);
  }
  const bool unlimited = stays && level.empty();
  for (const auto& [at, steps] : reached) {
    if (unlimited || depth - steps >= kEnough) plain_depths_[key(at)] = unlimited ? kUnlimited : depth - steps;
  }
  return unlimited ? kUnlimited : depth;
}

}  // namespace quire::grammar
