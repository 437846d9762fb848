// Compares a model's logits and greedy tokens with expected ones.
#pragma once

#include <string>
#include <vector>

#include "engine/single_sequence.h"

namespace quire {

// The results of another implementation or kernel set for one prompt; unknown ones are empty.
struct Expected {
  std::string name;
  TokenIds prompt;
  std::vector<float> logits;  // [prompt, vocab]
  TokenIds greedy;
  std::vector<float> margins;      // [greedy]: top-1 minus top-2 logit
  std::vector<float> step_logits;  // [steps, vocab] of the greedy steps; the first row is that of the last prompt token
};

struct Comparison {
  std::string name;
  int prompt_tokens = 0, positions = 0, greedy_compared = 0, greedy_equal = 0;
  double max_difference = 0, mean_kl = 0, max_kl = 0, top1 = 0, max_logit = 0;
};

class Verifier {
 public:
  // tolerance: the largest allowed difference of a logit; 0: 2e-4 + 1e-4 * the largest expected logit. The model must
  // outlive the verifier.
  Verifier(LoadedModel& model, double tolerance);

  // Decodes greedily, up to the first step whose margin is so small that rounding may decide it. Throws Error if the
  // sizes do not fit the model.
  Comparison compare(const Expected& expected);
  double allowed(const Comparison& comparison) const;
  bool passed(const Comparison& comparison) const;

 private:
  void add(Comparison& c, std::span<const float> expected, std::span<const float> got);
  void greedy(Comparison& c, const Expected& e, std::vector<float> logits);

  LoadedModel& model_;
  SingleSequence sequence_;
  size_t vocab_;
  double tolerance_;
};

}  // namespace quire
