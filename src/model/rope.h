// Rotary position embedding (arXiv 2104.09864) and the ways to stretch it to longer contexts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/types.h"
#include "ops/rope_table.h"

namespace quire {

struct RopeConfig {
  enum class Scaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope, kDynamic, kProportional };

  RopeKind kind = RopeKind::kHalves;
  int dim = 0;  // rotated elements of a head
  double theta = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;                                           // all scalings
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  double original_positions = 0;           // llama3, yarn, longrope, dynamic: context length before it was extended
  double beta_fast = 32, beta_slow = 1;    // yarn
  bool truncate = true;                    // yarn: the ramp begins and ends at whole pairs
  std::optional<double> attention_factor;  // yarn, longrope: multiplies cosines and sines; default: of the factor
  int rotated = 0;                         // proportional: elements that rotate; the others have frequency 0
  std::vector<double> short_factors, long_factors;  // longrope: one per pair
  std::vector<float> frequency_divisors;            // GGUF's rope_freqs: one per pair, or empty
};

// Some variants depend on the length of a sequence. It is chosen once, by the length of the prompt, so that no later
// token changes the keys of earlier ones; sequences of different variants share no pages.
// Returns 0 for the usual variant; longrope: 1 for prompts longer than the original context; dynamic: the prompt's
// length if it is longer.
int rope_variant(std::span<const RopeConfig> ropes, int prompt_tokens);

// The angles. Sources: transformers' modeling_rope_utils.py; YaRN: arXiv 2309.00071; LongRoPE: arXiv 2402.13753.
RopeTable make_rope_table(const RopeConfig& config, int variant = 0);

}  // namespace quire
