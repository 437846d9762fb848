// Models of any shape with random weights: for tests, and for measuring shapes whose weights are not at hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor_type.h"
#include "model/config.h"

namespace quire {

struct SynthShape {
  std::string_view name;
  int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context;
  double rope_theta;
  bool tied;
  int experts = 0, experts_used = 0;  // 0: one MLP per layer
  int window = 0;                     // in all layers; 0: none
};
// tiny and tiny-moe (tests), smollm2-135m, moe-16x (16 experts, two used), llama-3.2-1b, llama-3.2-3b, llama-3.1-8b
const std::vector<SynthShape>& synth_shapes();
const SynthShape& find_synth_shape(std::string_view name);  // throws Error that lists them
// The configuration that the file of a shape has.
ModelConfig synth_config(const SynthShape& shape);

// Writes a GGUF of the llama architecture: matrices of `type` (K types: rows of whole super-blocks only; else Q8_0),
// norms F32, and a byte-level vocabulary of 256 bytes, <s>, </s>, two merges and filler. The weights are random blocks
// scaled so that activations keep their size. The same arguments give the same bytes. Calls `progress` after each
// tensor.
void write_synthetic_model(const std::filesystem::path& path, const SynthShape& shape, TensorType type, uint64_t seed,
                           const std::function<void(size_t written, size_t total)>& progress = {});

}  // namespace quire
