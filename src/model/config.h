// What a decoder-only model is, whatever file it came from. The forward pass (decoder.h) is driven by this alone; a
// family file (families.h) fills it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "quire/types.h"

namespace quire {

struct RopeConfig {
  enum class Scaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

  RopeKind kind = RopeKind::kHalves;
  int dim = 0;  // elements of a head that turn
  double theta = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;                                           // all scalings
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  double original_positions = 0;           // llama3, yarn: the length the model was first trained for
  double beta_fast = 32, beta_slow = 1;    // yarn
  std::optional<double> attention_factor;  // yarn: what cosines and sines are multiplied with; 0.1 ln(factor) + 1
  std::vector<float> frequency_divisors;   // GGUF's rope_freqs: one a pair, or empty
};

struct ModelConfig {
  std::string architecture;  // llama, mistral, qwen2
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  int max_positions = 0;  // tokens the model was trained for
  float norm_epsilon = 1e-5f;
  RopeConfig rope;
  float attention_scale = 0;  // what scores are multiplied with: 1 / sqrt(head_dim)
  std::vector<int> windows;   // of each layer: tokens a token sees, itself included; 0: all
  bool tied_output = false;   // logits come from the embedding matrix

  TokenId bos = kNoToken;
  TokenIds eos;  // end an answer, according to the model's configuration files
};

// Checks ranges and relations that every later part relies on; throws Error naming `file`.
void validate(const ModelConfig& config, const std::string& file);

// The angles of RoPE: for each pair of a head, radians per position (float32, as the reference implementations compute
// them). Sources: transformers' modeling_rope_utils.py; YaRN: arXiv 2309.00071.
struct RopeTable {
  std::vector<float> frequencies;
  float amplitude = 1;  // cosines and sines are multiplied with it

  // [frequencies.size()][2]: cosine and sine of each pair at a position.
  void at(int position, float* cos_sin) const;
};
RopeTable make_rope_table(const RopeConfig& config);

}  // namespace quire
