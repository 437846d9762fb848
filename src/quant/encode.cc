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

// What the squared errors of a chunk's weights count. Importance is brought to a mean of about 1, so that no sum overflows
// or vanishes. Errors of large weights count more, by the root of s^2 + x^2, where s^2 is the mean square of the chunk
// (as in llama.cpp): what that changes is in docs/quantization.md.
void count_errors(TensorType type, std::span<const float> weights, std::span<const float> importance,
                  std::span<float> counts) {
  // Outliers count no more than weights of twice the usual size; of one bit, which has nothing but the scale to choose,
  // all count the same.
  const float most = type == TensorType::Q1_0 ? 1 : 2;
  double sum = 0, squares = 0;
  for (const float w : importance) sum += w;
  for (const float x : weights) squares += double{x} * x;
  const auto n = static_cast<double>(weights.size());
  const auto mean_square = static_cast<float>(squares / n);
  const double mean = sum / n;
  for (size_t i = 0; i < weights.size(); ++i) {
    const float w = mean > 0 ? std::max(static_cast<float>(importance[i] / mean), kLeastImportance) : 1.0f;
    const float size = mean_square > 0 ? std::sqrt(1 + weights[i] * (weights[i] / mean_square)) : 1.0f;
    counts[i] = w * std::min(size, most);
  }
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
    count_errors(type, row.first(elements), importance.first(std::min(importance.size(), elements)),
                 std::span(counts).first(elements));
    importance = importance.subspan(std::min(importance.size(), elements));
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
