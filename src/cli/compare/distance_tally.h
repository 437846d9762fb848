// How far a model's predictions are from those of another, token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/types.h"

namespace quire {

struct Estimate {
  double value = 0, error = 0;  // error: the standard error, from the tokens as independent samples
};

struct DistanceSummary {
  size_t tokens = 0;
  Estimate mean_kl;  // KL(reference || model), in nats
  double median_kl = 0, p90_kl = 0, p99_kl = 0, max_kl = 0;
  Estimate same_top;                                             // share of tokens with the same most probable one
  double right_to_wrong = 0, wrong_to_right = 0;                 // share of tokens whose top-1 prediction flips
  Estimate reference_perplexity, perplexity, perplexity_change;  // change: their difference, from paired tokens
};

class DistanceTally {
 public:
  // Two rows of logits for the same position, and the token that follows in the text; kNoToken: none, so that the row
  // counts for everything but perplexity and flips.
  void add(std::span<const float> reference, std::span<const float> logits, TokenId next, size_t position);

  // Of positions [begin, end); all fields are 0 if there are no tokens.
  DistanceSummary summary(size_t begin = 0, size_t end = SIZE_MAX) const;

 private:
  struct Row {
    size_t position;
    double kl, reference_loss, loss;  // losses: -log p(next)
    bool same_top, has_next, reference_right, right;
  };
  std::vector<Row> rows_;
};

}  // namespace quire
