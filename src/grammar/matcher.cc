#include "grammar/matcher.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "grammar/automaton.h"

namespace quire::grammar {

Matcher::Matcher(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<const Grammar> grammar)
    : vocabulary_(std::move(vocabulary)), grammar_(std::move(grammar)) {
  automata_.push_back(grammar_->automaton(vocabulary_));
  set_place(automata_.back()->start(), false);
}

void Matcher::set_place(StateId state, bool replace) {
  const StateFlags flags = automata_.back()->flags(state);
  const Place place{.automaton = first_automaton_ + static_cast<uint32_t>(automata_.size() - 1),
                    .state = state,
                    .accepting = flags.accepting,
                    .can_go_on = flags.can_go_on};
  if (replace) {
    places_.back() = place;
  } else {
    places_.push_back(place);
  }
}

// Moves to a new automaton if this one has grown too large.
Automaton& Matcher::automaton() {
  if (automata_.back()->outgrown()) {
    std::shared_ptr<Automaton> fresh = grammar_->automaton(vocabulary_);
    if (fresh != automata_.back()) {
      const StateId state = fresh->import(*automata_.back(), places_.back().state);
      automata_.push_back(std::move(fresh));
      set_place(state, true);
      forget();
    }
  }
  return *automata_.back();
}

// Drops places beyond kMaxRollBack, and the automata that only they needed.
void Matcher::forget() {
  if (places_.size() > kMaxRollBack + 1) places_.erase(places_.begin(), places_.end() - (kMaxRollBack + 1));
  for (; first_automaton_ < places_.front().automaton; ++first_automaton_) automata_.erase(automata_.begin());
}

size_t Matcher::fill_mask(std::span<uint32_t> bits) {
  assert(bits.size() == vocabulary_->mask_words());
  const Mask& mask = automaton().mask(places_.back().state);
  if (!mask.bits.empty()) {
    std::ranges::copy(mask.bits, bits.begin());
  } else {
    std::ranges::fill(bits, 0u);
    for (const TokenId token : mask.tokens) bits[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
  return mask.count;
}

bool Matcher::is_free() { return automaton().mask(places_.back().state).count * 8 >= vocabulary_->size(); }

bool Matcher::advance(TokenId token) {
  if (token < 0 || static_cast<size_t>(token) >= vocabulary_->size()) return false;
  const StateId state = automaton().advance(places_.back().state, token);
  if (state == kDead) return false;
  set_place(state, false);
  if (places_.size() > 2 * kMaxRollBack) forget();
  return true;
}

bool Matcher::advance_bytes(std::string_view text) {
  const StateId state = automaton().advance_bytes(places_.back().state, text);
  if (state == kDead) return false;
  set_place(state, true);
  return true;
}

void Matcher::roll_back(int tokens) {
  assert(tokens >= 0 && static_cast<size_t>(tokens) < places_.size());
  places_.resize(places_.size() - static_cast<size_t>(tokens));
  automata_.resize(places_.back().automaton - first_automaton_ + 1);
}

bool Matcher::accepting() const { return places_.back().accepting; }
bool Matcher::must_end() const { return places_.back().accepting && !places_.back().can_go_on; }

std::string Matcher::forced_bytes(size_t limit) { return automaton().forced_bytes(places_.back().state, limit); }

std::optional<TokenId> Matcher::forced_token() {
  const Mask& mask = automaton().mask(places_.back().state);
  if (mask.count != 1) return std::nullopt;
  if (!mask.tokens.empty()) return mask.tokens[0];
  for (size_t i = 0;; ++i) {
    if (mask.bits[i] != 0) return static_cast<TokenId>(i * 32) + std::countr_zero(mask.bits[i]);
  }
}

}  // namespace quire::grammar
