// What rounding costs: the model under its options beside the same model in float32.
#pragma once

#include <string>

#include "quire/engine.h"

namespace quire {

struct Quality {
  int tokens = 0;                               // compared; each is a row of logits
  std::string activations, kv_cache_dtype;      // of the model that is judged
  double mean_kl = 0, p99_kl = 0, max_kl = 0;   // KL(float32 || judged), nats
  double top1_agreement = 0;                    // share of rows with the same most probable token
  double perplexity = 0, float_perplexity = 0;  // of the text
};

// The first `tokens` tokens of a text file (UTF-8), in windows of 512. Loads the model twice, one after the other: as
// `options` say, and with float32 activations and cache. Throws Error when the text is too short.
Quality measure_quality(EngineOptions options, const std::string& file, int tokens);

}  // namespace quire
