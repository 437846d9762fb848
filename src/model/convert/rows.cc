#include "model/convert/rows.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "quant/blocks.h"

namespace quire {
namespace {

constexpr size_t kQ8Block = 32;

void put16(uint16_t half, std::byte* to) { std::memcpy(to, &half, sizeof half); }

// {f16 scale, int8 codes[32]}
bool encode_q8_0(std::span<const float> row, std::byte* out) {
  bool sound = true;
  for (size_t at = 0; at < row.size(); at += kQ8Block, out += 2 + kQ8Block) {
    const auto block = row.subspan(at, kQ8Block);
    float most = 0;
    for (const float x : block) {
      most = std::max(most, std::fabs(x));
      sound &= std::isfinite(x);
    }
    const float scale = most / 127.0f;
    float inverse = scale != 0 ? 1.0f / scale : 0.0f;
    if (!std::isfinite(inverse)) inverse = 0;  // the weights are subnormal, and their scale is 0 in F16
    const uint16_t half = f32_to_f16(scale);
    sound &= std::isfinite(f16_to_f32(half));
    put16(half, out);
    for (size_t i = 0; i < kQ8Block; ++i)
      out[2 + i] = static_cast<std::byte>(sound ? static_cast<int8_t>(std::round(block[i] * inverse)) : 0);
  }
  return sound;
}

}  // namespace

void read_row(const FileMatrix& m, int row, int first_col, std::span<float> out) {
  const TensorTypeInfo& type = info(m.view->type);
  const size_t rows = static_cast<size_t>(m.rows), cols = static_cast<size_t>(m.cols),
               first = static_cast<size_t>(first_col), at = static_cast<size_t>(row);
  const auto matrix =
      m.view->bytes.subspan(m.view->bytes.size() / static_cast<size_t>(m.items) * static_cast<size_t>(m.item));
  if (!m.transposed) {
    assert(first % type.block_elements == 0 && out.size() % type.block_elements == 0);
    const size_t begin = (at * cols + first) / type.block_elements * type.block_bytes;
    return dequantize(m.view->type, matrix.subspan(begin, out.size() / type.block_elements * type.block_bytes), out);
  }
  for (size_t i = 0; i < out.size(); ++i)
    dequantize(m.view->type, matrix.subspan(((first + i) * rows + at) * type.block_bytes, type.block_bytes),
               out.subspan(i, 1));
}

bool is_writable(TensorType type) {
  return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16 || type == TensorType::Q8_0;
}

bool encode_row(TensorType type, std::span<const float> row, std::span<std::byte> out) {
  assert(is_writable(type) && out.size() == row.size() / info(type).block_elements * info(type).block_bytes);
  if (type == TensorType::Q8_0) return encode_q8_0(row, out.data());
  bool sound = true;
  for (size_t i = 0; i < row.size(); ++i) {
    sound &= std::isfinite(row[i]);
    if (type == TensorType::F32) {
      std::memcpy(&out[4 * i], &row[i], sizeof(float));
      continue;
    }
    const uint16_t half = type == TensorType::BF16 ? f32_to_bf16(row[i]) : f32_to_f16(row[i]);
    sound &= std::isfinite(type == TensorType::BF16 ? bf16_to_f32(half) : f16_to_f32(half));
    put16(half, &out[2 * i]);
  }
  return sound;
}

}  // namespace quire
