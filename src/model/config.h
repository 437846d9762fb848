// The configuration of a decoder-only model, independent of its file format. Families (families.h) fill it; the forward
// pass (decoder.h) needs nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/cache_layout.h"
#include "quire/types.h"

namespace quire {

struct RopeConfig {
  enum class Scaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

  RopeKind kind = RopeKind::kHalves;
  int dim = 0;  // rotated elements of a head
  double theta = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;                                           // all scalings
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  double original_positions = 0;                               // llama3, yarn: context length before it was extended
  double beta_fast = 32, beta_slow = 1;                        // yarn
  std::optional<double> attention_factor;  // yarn: multiplies cosines and sines; default: 0.1 ln(factor) + 1
  std::vector<float> frequency_divisors;   // GGUF's rope_freqs: one per pair, or empty
};

struct ModelConfig {
  std::string architecture;  // llama, mistral, qwen2
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  int max_positions = 0;  // context length the model was trained for
  float norm_epsilon = 1e-5f;
  RopeConfig rope;
  float attention_scale = 0;  // multiplies scores: 1 / sqrt(head_dim)
  std::vector<int> windows;   // of each layer: tokens a query sees, its own included; 0: all
  bool tied_output = false;   // the output matrix is the embedding matrix

  TokenId bos = kNoToken;
  TokenIds eos;  // tokens that end an answer, by the model's configuration files
};

// What the layers keep of past tokens.
CacheLayout cache_layout(const ModelConfig& config, KvType type);

// Checks the ranges and relations that all other code relies on; throws Error naming `file`.
void validate(const ModelConfig& config, const std::string& file);

// The angles of RoPE: radians per position for each pair of a head, in float32 as in the reference implementations.
// Sources: transformers' modeling_rope_utils.py; YaRN: arXiv 2309.00071.
struct RopeTable {
  std::vector<float> frequencies;
  float amplitude = 1;  // multiplies cosines and sines

  // cos_sin [frequencies.size()][2]: the cosine and sine of each pair at a position.
  void at(int position, float* cos_sin) const;
};
RopeTable make_rope_table(const RopeConfig& config);

}  // namespace quire
