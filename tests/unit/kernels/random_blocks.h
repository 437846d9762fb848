// Random but valid weights in a file's layout, for kernel tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "base/memory.h"
#include "base/tensor_type.h"
#include "kernels/packed.h"

namespace quire::testing {

// Bytes of [rows, cols]: quants random, scales small normal float16 numbers.
inline std::vector<std::byte> random_matrix(TensorType type, int rows, int cols, std::mt19937& random) {
  const TensorTypeInfo& t = info(type);
  const size_t blocks = static_cast<size_t>(rows) * static_cast<size_t>(cols) / t.block_elements;
  std::vector<std::byte> bytes(blocks * t.block_bytes);
  std::normal_distribution<float> normal(0, 0.05f);
  const auto put = [&](size_t at, uint16_t value) { std::memcpy(bytes.data() + at, &value, 2); };
  if (!is_quantized(type)) {
    for (size_t i = 0; i < blocks; ++i) {
      const float value = normal(random);
      if (type == TensorType::F32) std::memcpy(bytes.data() + 4 * i, &value, 4);
      if (type == TensorType::F16) put(2 * i, f32_to_f16(value));
      if (type == TensorType::BF16) put(2 * i, f32_to_bf16(value));
    }
    return bytes;
  }
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  for (size_t i = 0; i < blocks; ++i) {
    const size_t at = i * t.block_bytes;
    if (type == TensorType::Q6_K) {
      put(at + 208, f32_to_f16(normal(random) / 32));
    } else {
      put(at, f32_to_f16(normal(random)));
      if (packed_format(type).has_minimum) put(at + 2, f32_to_f16(normal(random)));
    }
  }
  return bytes;
}

struct OwnedMatrix {
  PackedMatrix matrix;
  LargeBuffer memory;
};
inline OwnedMatrix pack(TensorType type, int rows, int cols, std::span<const std::byte> source) {
  OwnedMatrix m{describe_packed(type, rows, cols), {}};
  m.memory = LargeBuffer(m.matrix.bytes());
  pack_panels(m.matrix, source, m.memory.data(), 0, m.matrix.panels());
  m.matrix.data = m.memory.data();
  return m;
}

inline constexpr TensorType kLoadable[] = {TensorType::F32,  TensorType::F16,  TensorType::BF16, TensorType::Q4_0,
                                           TensorType::Q4_1, TensorType::Q5_0, TensorType::Q5_1, TensorType::Q8_0,
                                           TensorType::Q4_K, TensorType::Q5_K, TensorType::Q6_K};

}  // namespace quire::testing
