#include "speculate/lookup/lookahead.h"

#include <algorithm>
#include <cassert>

namespace quire {

Lookahead::Lookahead(const Options& options)
    : pool_(options.n, options.sets, options.ways),
      columns_(static_cast<size_t>(options.window)),
      keep_(std::max(pool_.n(), columns_)) {
  assert(options.window >= 1);
  window_.reserve(columns_);
  recent_.reserve(keep_);
  ngram_.reserve(pool_.n());
}

void Lookahead::push(TokenId token) {
  if (recent_.size() == keep_) recent_.erase(recent_.begin());
  recent_.push_back(token);
  if (recent_.size() >= pool_.n()) pool_.insert(std::span(recent_).last(pool_.n()));
  // The window moves with the sequence.
  if (window_.size() == columns_) window_.erase(window_.begin());
  window_.push_back(recent_.front());
}

void Lookahead::append(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) push(token);
}

void Lookahead::pool_predictions(std::span<const TokenId> guessed, std::span<const TokenId> predicted,
                                 size_t accepted) {
  const size_t context = pool_.n() - 1;
  for (size_t row = accepted + 1; row < guessed.size(); ++row) {
    // The `context` tokens that end in guessed[row]; guessed[0] is the last of recent_.
    const size_t drafted = std::min(context, row);
    const size_t before = context - drafted;
    if (before > recent_.size()) continue;
    const std::span<const TokenId> tail = std::span(recent_).last(before);
    const std::span<const TokenId> chain = guessed.subspan(row + 1 - drafted, drafted);
    ngram_.assign(tail.begin(), tail.end());
    ngram_.insert(ngram_.end(), chain.begin(), chain.end());
    ngram_.push_back(predicted[row]);
    pool_.insert(ngram_);
  }
}

void Lookahead::observe(std::span<const TokenId> guessed, std::span<const TokenId> predicted) {
  assert(!guessed.empty() && guessed.size() == predicted.size());
  assert(recent_.empty() || recent_.back() == guessed[0]);
  if (recent_.empty()) push(guessed[0]);
  size_t accepted = 0;
  while (accepted + 1 < guessed.size() && guessed[accepted + 1] == predicted[accepted]) ++accepted;

  pool_predictions(guessed, predicted, accepted);  // first, so that n-grams of the text are the later ones
  append(predicted.first(accepted + 1));
  // The predictions of the rejected rows replace the guesses for the positions after them.
  const auto rejected = predicted.subspan(accepted + 1);
  for (size_t i = 0; i < std::min(rejected.size(), columns_); ++i) {
    if (i == window_.size()) window_.push_back(kNoToken);
    window_[i] = rejected[i];
  }
}

void Lookahead::draft(int depth, Drafts& out) const {
  assert(depth >= 0);
  out.clear();
  if (depth == 0 || recent_.empty()) return;
  const auto wanted = static_cast<size_t>(depth);
  TokenId last = recent_.back();
  out.start(pool_.after(last).empty() ? 0 : 1);
  size_t drafted = 0;
  for (auto known = pool_.after(last); drafted < wanted && !known.empty(); known = pool_.after(last)) {
    for (size_t i = 0; i < known.size() && drafted < wanted; ++i, ++drafted) out.push(last = known[i]);
  }
  for (; drafted < std::min(wanted, window_.size()); ++drafted) out.push(window_[drafted]);
}

}  // namespace quire
