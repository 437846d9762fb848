// The cost of rounding: the model with given options compared with itself in float32.
#pragma once

#include <string>

#include "cli/terminal/progress.h"
#include "quire/engine.h"

namespace quire {

struct Quality {
  int tokens = 0;                               // compared; each has a row of logits
  std::string activations, kv_cache_dtype;      // what the rounded model uses
  double mean_kl = 0, p99_kl = 0, max_kl = 0;   // KL(float32 || rounded), in nats
  double top1_agreement = 0;                    // share of rows with the same most probable token
  double perplexity = 0, float_perplexity = 0;  // the text's, for both models
};

// On the first `tokens` tokens of a UTF-8 file, in windows of 512. Loads the model twice in succession: with `options`,
// then with float32 activations and cache. Throws Error if the text is too short.
Quality measure_quality(EngineOptions options, const std::string& file, int tokens, Progress& progress);

}  // namespace quire
