// Models of any shape with random weights, for tests and for measuring shapes without downloading weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor_type.h"

namespace quire {

struct SynthShape {
  std::string_view name;
  int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context;
  double rope_theta;
  bool tied;
};
// tiny (tests), smollm2-135m, llama-3.2-1b, llama-3.2-3b, llama-3.1-8b
const std::vector<SynthShape>& synth_shapes();
const SynthShape& find_synth_shape(std::string_view name);  // throws Error that lists them

// A matrix in file layout: random blocks whose weights have mean zero and standard deviation `sigma`.
std::vector<std::byte> synthetic_matrix(TensorType type, int rows, int cols, float sigma, uint64_t seed);

// Writes a GGUF of the llama architecture: matrices of `type` (Q8_0 or F16 if a row is not a whole number of its
// blocks), norms F32, and a byte-level vocabulary of 256 bytes, <s>, </s>, two merges and filler. Weights are random,
// scaled so that activations keep their magnitude. The same arguments give the same bytes.
void write_synthetic_model(const std::filesystem::path& path, const SynthShape& shape, TensorType type, uint64_t seed);

}  // namespace quire
