#include "quant/synthetic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "base/float8.h"
#include "base/half.h"
#include "quant/blocks.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

using Random = std::mt19937_64;

void put16(std::byte* at, uint16_t value) { std::memcpy(at, &value, sizeof value); }

// Where the float16 scale of a block lies, and what multiplies its minima; -1: there is none.
struct Fields {
  int scale, minimum;
};
Fields fields_of(TensorType type) {
  switch (type) {
    case TensorType::Q4_1:
    case TensorType::Q5_1:
    case TensorType::Q4_K:
    case TensorType::Q5_K:
      return {0, 2};
    case TensorType::Q2_K:
      return {80, 82};
    case TensorType::Q3_K:
      return {108, -1};
    case TensorType::Q6_K:
      return {208, -1};
    case TensorType::TQ1_0:
      return {52, -1};
    case TensorType::TQ2_0:
      return {64, -1};
    case TensorType::IQ1_M:
    case TensorType::MXFP4:
    case TensorType::NVFP4:
      return {-1, -1};
    default:
      return {0, -1};
  }
}

// Gives a block of random bytes this scale.
void set_scale(TensorType type, float scale, Random& random, std::byte* block) {
  const PanelFormat& format = panel_format(type);
  if (type == TensorType::IQ1_M) {  // a nibble in each of four words
    const unsigned half = f32_to_f16(scale);
    for (size_t i = 0; i < 4; ++i) {
      std::byte& high = block[48 + 2 * i + 1];
      high = (high & std::byte{15}) | static_cast<std::byte>((half >> 4 * i & 15) << 4);
    }
  } else if (type == TensorType::MXFP4) {
    block[0] = static_cast<std::byte>(std::clamp(127 + std::ilogb(scale) + static_cast<int>(random() % 2), 2, 250));
  } else if (type == TensorType::NVFP4) {
    uint8_t code = 1;
    while (code < 0x7e && e4m3_to_f32(code) < scale) ++code;
    for (int i = 0; i < 4; ++i) block[i] = static_cast<std::byte>(std::min<uint64_t>(0x7e, code + random() % 2));
  } else {
    const Fields at = fields_of(type);
    put16(block + at.scale, f32_to_f16(scale));
    if (at.minimum < 0) return;
    // Codes are centred on (levels - 1) / 2. Integer scales and minima have the same mean.
    const float levels = format.codes == Codes::kU2 ? 4 : format.codes == Codes::kU4 ? 16 : 32;
    const float centre = scale * (levels - 1) / 2;
    put16(block + at.minimum, f32_to_f16(format.zeros == ZeroKind::kSuper ? centre : -centre));
  }
}

void fill(Random& random, std::span<std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, bytes.size() - i));
  }
}

// The deviation of weights under a scale of 1.
float unit_deviation(TensorType type, Random& random) {
  constexpr size_t kBlocks = 64;
  const TensorTypeInfo& t = info(type);
  std::vector<std::byte> bytes(kBlocks * t.block_bytes);
  fill(random, bytes);
  for (size_t at = 0; at < bytes.size(); at += t.block_bytes) set_scale(type, 1, random, &bytes[at]);
  std::vector<float> values(kBlocks * t.block_elements);
  dequantize(type, bytes, values);
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  return static_cast<float>(std::sqrt(squares / static_cast<double>(values.size())));
}

}  // namespace

std::vector<std::byte> synthetic_matrix(TensorType type, int rows, int cols, float sigma, uint64_t seed) {
  Random random(seed);
  const TensorTypeInfo& t = info(type);
  const size_t blocks = static_cast<size_t>(rows) * static_cast<size_t>(cols) / t.block_elements;
  std::vector<std::byte> bytes(blocks * t.block_bytes);
  if (!has_scales(panel_format(type))) {
    std::normal_distribution<float> normal(0, sigma);
    for (size_t i = 0; i < blocks; ++i) {
      const float value = normal(random);
      if (type == TensorType::F32) std::memcpy(&bytes[4 * i], &value, 4);
      if (type == TensorType::F16) put16(&bytes[2 * i], f32_to_f16(value));
      if (type == TensorType::BF16) put16(&bytes[2 * i], f32_to_bf16(value));
    }
    return bytes;
  }
  const float scale = sigma / unit_deviation(type, random);
  std::uniform_real_distribution<float> spread(0.5f, 1.5f);
  fill(random, bytes);
  for (size_t at = 0; at < bytes.size(); at += t.block_bytes)
    set_scale(type, scale * spread(random), random, &bytes[at]);
  return bytes;
}

}  // namespace quire
