// Lookahead decoding (Fu et al., "Break the sequential dependency of LLM inference using lookahead decoding", 2024,
// arXiv 2402.02057).
#pragma once

#include <cstddef>
#include <span>

#include "quire/types.h"
#include "speculate/lookup/drafts.h"
#include "speculate/lookup/ngram_pool.h"

namespace quire {

// Jacobi iteration guesses the next `window` tokens of a sequence at once, and each step replaces each guess by what
// the target predicts after the guesses before it. Guesses that have become right are accepted; n-grams that appear
// on the way are collected in a pool, because they often appear again.
//
// It differs from the paper, since here a row sees all rows before it of its sequence, and no others (KV rows are
// keyed by position; there are no tree masks):
//   - The paper computes a lookahead branch, window * (n - 1) guesses of n - 1 iterations, and a verification branch, the
//     pool's n-grams, in the same step, apart by a mask. Here a step has one chain of drafted rows, and is both: rows
//     that are accepted were verified, and the rejected rows' predictions are the Jacobi iteration, for nothing.
//   - The window is one row of guesses. The paper's n-grams run along the diagonal of n - 1 iterations, since that is what
//     its new token attends to. Here a prediction attends to the chain, so an n-gram is n - 1 tokens of the chain and
//     the prediction after them.
//   - One n-gram is verified a step, the latest one, instead of several; where it ends, the n-gram of its last token goes
//     on, and where the pool knows none, the window's guesses.
//   - Guesses begin as the tokens before, not as random ones: a draft depends only on the tokens observed.
//
// Memory: that of the pool, and 8 (window + n) bytes. Allocates in the constructor only. Not thread-safe.
class Lookahead {
 public:
  // The paper's choice for a 7B model is n = 5 and a window of 15; its pool has as many n-grams a first token as the
  // window.
  struct Options {
    int n = 4, window = 8;
    size_t sets = 256, ways = 8;  // size of the pool: about 40 KiB
  };
  explicit Lookahead(const Options& options);

  // Tokens of the prompt, and tokens that were accepted without drafted rows. Their n-grams enter the pool.
  void append(std::span<const TokenId> tokens);

  // A step of the target: guessed[0] is the sequence's last token, the others are drafted tokens after it, from any
  // drafter; predicted[i] is the target's token after guessed[0..i]. The tokens accepted, which the sequence has
  // grown by, are predicted[0..a], where a is the number of drafted tokens that were right.
  void observe(std::span<const TokenId> guessed, std::span<const TokenId> predicted);

  // Replaces `out` by one draft of at most `depth` tokens (at most the window where the pool knows nothing). Its
  // match is 1 if the pool knew its first token, else 0. No draft: no token was observed yet.
  void draft(int depth, Drafts& out) const;

  const NgramPool& pool() const { return pool_; }
  // The guess for each position after the last token.
  std::span<const TokenId> window() const { return window_; }

 private:
  void push(TokenId token);
  void pool_predictions(std::span<const TokenId> guessed, std::span<const TokenId> predicted, size_t accepted);

  NgramPool pool_;
  TokenIds window_;
  TokenIds recent_;  // the last max(n, window) tokens of the sequence, or those there were
  TokenIds ngram_;   // scratch
  size_t columns_;   // columns of the window, once as many tokens were observed
  size_t keep_;      // how many tokens recent_ keeps
};

}  // namespace quire
