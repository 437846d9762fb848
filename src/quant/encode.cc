#include "quant/encode.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/coded_chunk.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

// Columns without importance keep a trace of it: their codes cost nothing, and they may matter for another text.
constexpr float kLeastImportance = 1e-6f;

// Brings the importance of a chunk to a mean of about 1, so that no sum overflows or vanishes.
void normalise(std::span<const float> from, std::span<float> to) {
  double sum = 0;
  for (const float w : from) sum += w;
  const double mean = sum / static_cast<double>(from.size());
  for (size_t i = 0; i < from.size(); ++i)
    to[i] = mean > 0 ? std::max(static_cast<float>(from[i] / mean), kLeastImportance) : 1.0f;
}

EncodeResult encode_blocks(TensorType type, std::span<const float> row, std::span<const float> importance,
                           std::byte* out) {
  constexpr size_t kSize = kSuperInputs;
  std::array<float, kSize> weights, counts;
  counts.fill(1);
  CodedChunk chunk(panel_format(type));
  while (!row.empty()) {
    const size_t elements = std::min(row.size(), kSize);
    std::copy_n(row.begin(), elements, weights.begin());
    std::fill(weights.begin() + static_cast<ptrdiff_t>(elements), weights.end(), 0.0f);
    if (!importance.empty()) {
      normalise(importance.first(elements), std::span(counts).first(elements));
      importance = importance.subspan(elements);
    }
    if (!fit_parts(type, weights, counts, chunk.first(kSize))) return EncodeResult::kTooLarge;
    write_row(type, chunk.first(elements), out);
    out += elements / info(type).block_elements * info(type).block_bytes;
    row = row.subspan(elements);
  }
  return EncodeResult::kDone;
}

EncodeResult encode_halves(TensorType type, std::span<const float> row, std::byte* out) {
  bool fits = true;
  for (size_t i = 0; i < row.size(); ++i) {
    const uint16_t half = type == TensorType::BF16 ? f32_to_bf16(row[i]) : f32_to_f16(row[i]);
    fits &= std::isfinite(type == TensorType::BF16 ? bf16_to_f32(half) : f16_to_f32(half)) != 0;
    std::memcpy(out + sizeof half * i, &half, sizeof half);
  }
  return fits ? EncodeResult::kDone : EncodeResult::kTooLarge;
}

}  // namespace

bool is_writable(TensorType type) {
  return has_panel_format(type) && (!has_scales(panel_format(type)) || has_writer(type));
}

std::vector<TensorType> writable_types() {
  std::vector<TensorType> types;
  for (const TensorTypeInfo& type : tensor_types()) {
    if (is_writable(type.type)) types.push_back(type.type);
  }
  return types;
}

EncodeResult encode_row(TensorType type, std::span<const float> row, std::span<const float> importance,
                        std::span<std::byte> out) {
  assert(is_writable(type) && out.size() == row.size() / info(type).block_elements * info(type).block_bytes);
  assert(importance.empty() || importance.size() == row.size());
  if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) return EncodeResult::kNotFinite;
  switch (type) {
    case TensorType::F32:
      std::memcpy(out.data(), row.data(), row.size_bytes());
      return EncodeResult::kDone;
    case TensorType::F16:
    case TensorType::BF16:
      return encode_halves(type, row, out.data());
    default:
      return encode_blocks(type, row, importance, out.data());
  }
}

}  // namespace quire
