#include "kernels/self_check.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory.h"

namespace quire {
namespace {

constexpr int kOutputs = 16, kInputs = 128, kRows = 17;

// Numbers of all magnitudes from 2^-8 to 2^8 and both signs: sums in another order would round differently.
class Numbers {
 public:
  uint32_t bits() { return state_ = state_ * 1664525u + 1013904223u; }
  float number() {
    const uint32_t random = bits() >> 8;
    const float mantissa = 1.0f + static_cast<float>(random & 0xffff) / 65536.0f;
    const float size = mantissa * static_cast<float>(1u << (random >> 16 & 15)) / 256.0f;
    return random >> 20 & 1 ? -size : size;
  }

 private:
  uint32_t state_ = 1;
};

std::vector<float> products(const KernelSet& kernels, const PackedMatrix& matrix, Activations activations,
                            const std::vector<float>& x) {
  const size_t stride = static_cast<size_t>(matrix.blocks()) * activation_block_bytes(activations);
  const LargeBuffer blocks(stride * padded_rows(kRows));
  kernels.quantize({.x = x.data(),
                    .x_stride = kInputs,
                    .cols = kInputs,
                    .to = activations,
                    .out = blocks.data(),
                    .out_stride = stride},
                   0, kRows);
  std::vector<float> y(size_t{kRows} * kOutputs);
  kernels.linear({.weights = &matrix,
                  .activations = activations,
                  .x = blocks.data(),
                  .x_stride = stride,
                  .y = y.data(),
                  .y_stride = kOutputs},
                 0, 1, 0, kRows);
  return y;
}

}  // namespace

bool gives_defined_bits(const KernelSet& kernels) {
  Numbers numbers;
  std::vector<float> x(size_t{kRows} * kInputs);
  for (float& value : x) value = numbers.number();
  for (const TensorType type : {TensorType::BF16, TensorType::Q4_0}) {
    PackedMatrix matrix = describe_packed(type, kOutputs, kInputs);
    const LargeBuffer memory(matrix.bytes());
    matrix.data = memory.data();
    std::vector<std::byte> source;
    if (type == TensorType::BF16) {
      for (int i = 0; i < kOutputs * kInputs; ++i) {
        const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(numbers.number()) >> 16);
        source.push_back(static_cast<std::byte>(bits & 255));
        source.push_back(static_cast<std::byte>(bits >> 8));
      }
    } else {  // blocks of a float16 scale, here 1 to 1.25, and 32 nibbles
      for (int block = 0; block < kOutputs * kInputs / kBlockInputs; ++block) {
        source.push_back(static_cast<std::byte>(numbers.bits() >> 24));
        source.push_back(std::byte{0x3c});
        for (int i = 0; i < kBlockInputs / 2; ++i) source.push_back(static_cast<std::byte>(numbers.bits() >> 24));
      }
    }
    pack_panels(matrix, type, source, memory.data(), 0, 1);
    for (const Activations activations : {Activations::kBf16, Activations::kInt8, Activations::kInt8x2}) {
      if (activations_for(activations, matrix.format) != activations) continue;
      if (products(kernels, matrix, activations, x) != products(reference_kernels(), matrix, activations, x))
        return false;
    }
  }
  return true;
}

}  // namespace quire
