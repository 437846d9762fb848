#include "quantize/solve/block_feedback.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <numeric>
#include <optional>

#include "quant/block_type.h"
#include "quant/coded_chunk.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

constexpr size_t kChunk = kSuperInputs;
constexpr float kLeastCount = 1e-6f;

// Codes of IQ1 to IQ3 come from a lattice: one cannot be changed alone.
bool has_vectors(TensorType type) {
  return std::ranges::find(grid_block_types(), type, &BlockType::type) != grid_block_types().end();
}

// The codes that a weight may have.
std::vector<uint8_t> codes_of(TensorType type) {
  if (type == TensorType::Q1_0) return {0, 2};
  if (type == TensorType::TQ1_0 || type == TensorType::TQ2_0) return {0, 1, 2};
  std::vector<uint8_t> codes(size_t{1} << code_bits(panel_format(type).codes));
  std::iota(codes.begin(), codes.end(), uint8_t{0});
  return codes;
}

// The number that each code stands for, at each place of a chunk.
class Levels {
 public:
  Levels(TensorType type, std::span<const uint8_t> codes, const CodedRow& parts) : codes_(codes) {
    for (size_t i = 0; i < codes.size(); ++i) {
      std::ranges::fill(parts.codes, codes[i]);
      decode_row(panel_format(type), panel_factor(type), parts, std::span(numbers_[i]).first(parts.codes.size()));
    }
  }

  struct Choice {
    uint8_t code;
    float number;
  };
  Choice nearest(float x, size_t at) const {
    size_t best = 0;
    for (size_t i = 1; i < codes_.size(); ++i) {
      if (std::fabs(numbers_[i][at] - x) < std::fabs(numbers_[best][at] - x)) best = i;
    }
    return {codes_[best], numbers_[best][at]};
  }

 private:
  static constexpr size_t kMost = 64;
  const std::span<const uint8_t> codes_;
  std::array<std::array<float, kChunk>, kMost> numbers_;
};

}  // namespace

BlockFeedback::BlockFeedback(TensorType type, const InverseFactor& factor)
    : type_(type), factor_(factor), codes_(codes_of(type)) {
  assert(std::ranges::is_sorted(factor.order) && has_writer(type));
  for (int i = 0; i < factor.cols; ++i) {
    const auto at = static_cast<size_t>(i);
    const float pivot = factor.row(i)[at];
    counts_.push_back(factor.dead[at] ? 0 : 1 / (pivot * pivot));
  }
}

// Codes of one chunk, and its errors. upper: the factor from the chunk's pivot on; weights: moved up to here.
void BlockFeedback::round_codes(const float* upper, const CodedRow& parts, std::span<float> weights,
                                std::span<float> errors) const {
  const auto stride = static_cast<size_t>(factor_.cols);
  std::array<float, kChunk> fixed;
  const bool is_fixed = has_vectors(type_);
  if (is_fixed) decode_row(panel_format(type_), panel_factor(type_), parts, std::span(fixed).first(weights.size()));
  std::optional<Levels> levels;
  if (!is_fixed) levels.emplace(type_, codes_, parts);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (levels) {
      const Levels::Choice choice = levels->nearest(weights[i], i);
      parts.codes[i] = choice.code;
      fixed[i] = choice.number;
    }
    const float* const u = upper + i * stride;
    const float error = (weights[i] - fixed[i]) / u[i];
    errors[i] = error;
    for (size_t k = i + 1; k < weights.size(); ++k) weights[k] -= error * u[k];
  }
}

EncodeResult BlockFeedback::encode(std::span<float> rows, std::span<std::byte> out) {
  const auto cols = static_cast<size_t>(factor_.cols), count = rows.size() / cols;
  const TensorTypeInfo& type = info(type_);
  const size_t row_bytes = cols / type.block_elements * type.block_bytes;
  assert(rows.size() == count * cols && out.size() == count * row_bytes);
  if (!std::ranges::all_of(rows, [](float x) { return std::isfinite(x); })) return EncodeResult::kNotFinite;
  errors_.resize(count * kChunk);
  CodedChunk chunk(panel_format(type_));
  for (size_t begin = 0; begin < cols; begin += kChunk) {
    const size_t size = std::min(kChunk, cols - begin), rest = cols - begin - size;
    std::array<float, kChunk> weights{}, counts;
    counts.fill(1);
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += counts_[begin + i];
    for (size_t i = 0; i < size && sum > 0; ++i)
      counts[i] = std::max(kLeastCount, counts_[begin + i] / static_cast<float>(sum / static_cast<double>(size)));
    for (size_t r = 0; r < count; ++r) {
      const std::span<float> row = rows.subspan(r * cols + begin, size);
      std::ranges::copy(row, weights.begin());
      if (!fit_parts(type_, weights, counts, chunk.first(kChunk))) return EncodeResult::kTooLarge;
      const CodedRow parts = chunk.first(size);
      round_codes(factor_.row(static_cast<int>(begin)).data() + begin, parts, row,
                  std::span(errors_).subspan(r * size, size));
      write_row(type_, parts, out.data() + r * row_bytes + begin / type.block_elements * type.block_bytes);
    }
    if (rest > 0)
      subtract_product(static_cast<int>(count), static_cast<int>(size), static_cast<int>(rest), errors_.data(),
                       factor_.row(static_cast<int>(begin)).data() + begin + size, factor_.cols,
                       {rows.data() + begin + size, factor_.cols});
  }
  return EncodeResult::kDone;
}

}  // namespace quire
