#include "quantize/solve/integer_grid.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/half.h"

namespace quire {
namespace {

constexpr int kTurns = 3;  // of rounding and least squares; more change less than 0.1 % of the error

// The parts of the range that are tried: fewer bits gain from leaving out more.
struct Parts {
  float least;
  int count;
};
constexpr Parts parts_of(int bits) {
  return bits == 2 ? Parts{0.3f, 36} : bits == 3 ? Parts{0.45f, 28} : bits == 4 ? Parts{0.6f, 21} : Parts{0.9f, 11};
}

// What rounding to a grid loses, and what least squares needs to improve it.
struct Rounding {
  double loss = 0;                                  // sum(w (x - scale q)^2), q = code - zero
  double weight = 0, q = 0, qq = 0, x = 0, xq = 0;  // sums over the weights, each times w
};

Rounding round_all(std::span<const float> weights, std::span<const float> importance, const GroupFit& fit,
                   const IntegerGrid& grid) {
  Rounding r;
  for (size_t i = 0; i < weights.size(); ++i) {
    const float q = static_cast<float>(round_code(weights[i], fit, grid) - fit.zero),
                w = importance.empty() ? 1 : importance[i], error = weights[i] - fit.scale * q;
    r.loss += static_cast<double>(w * error * error);
    r.weight += static_cast<double>(w);
    r.q += static_cast<double>(w * q);
    r.qq += static_cast<double>(w * q * q);
    r.x += static_cast<double>(w * weights[i]);
    r.xq += static_cast<double>(w * weights[i] * q);
  }
  return r;
}

GroupFit stored(double scale, int zero, const IntegerGrid& grid) {
  float rounded = rounded_scale(static_cast<float>(scale), grid.scale_type);
  // A scale that rounds to 0 would make every weight 0: use the smallest that the type has.
  if (rounded == 0 && scale > 0)
    rounded = grid.scale_type == ScaleType::kF16 ? 0x1p-24f : std::numeric_limits<float>::min();
  if (!(rounded > 0)) return {1, grid.symmetric ? grid.middle() : grid.least_zero};
  return {rounded, grid.symmetric ? grid.middle() : std::clamp(zero, grid.least_zero, grid.most())};
}

// The scale, or scale and zero point, that fit the codes best.
GroupFit refit(const Rounding& r, const GroupFit& fit, const IntegerGrid& grid) {
  if (grid.symmetric) return r.qq > 0 ? stored(r.xq / r.qq, 0, grid) : fit;
  const double determinant = r.weight * r.qq - r.q * r.q;
  if (!(determinant > 1e-9 * r.weight * r.qq)) return fit;  // all codes are equal
  const double scale = (r.weight * r.xq - r.q * r.x) / determinant, offset = (r.qq * r.x - r.q * r.xq) / determinant;
  if (!(scale > 0)) return fit;
  // x = scale q + offset = scale (q + offset / scale), so the zero point falls by offset / scale.
  return stored(scale, fit.zero - static_cast<int>(std::lrint(std::clamp(offset / scale, -256.0, 256.0))), grid);
}

// What squared errors count where nothing is known of the inputs: large weights more than small ones, as in GGUF files
// (docs/quantization.md), because inputs that matter have large weights more often than not.
std::vector<float> importance_of_sizes(std::span<const float> row) {
  double sum = 0;
  for (const float w : row) sum += static_cast<double>(w) * static_cast<double>(w);
  const auto mean = static_cast<float>(sum / static_cast<double>(std::max<size_t>(1, row.size())));
  std::vector<float> importance;
  for (const float w : row) importance.push_back(mean > 0 ? std::sqrt(1 + w * w / mean) : 1);
  return importance;
}

}  // namespace

float rounded_scale(float scale, ScaleType type) {
  return type == ScaleType::kF16    ? f16_to_f32(f32_to_f16(scale))
         : type == ScaleType::kBf16 ? bf16_to_f32(f32_to_bf16(scale))
                                    : scale;
}

GroupFit cover_range(std::span<const float> weights, float part, const IntegerGrid& grid) {
  float low = 0, high = 0;
  for (const float w : weights) low = std::min(low, w), high = std::max(high, w);
  if (grid.symmetric)
    return stored(part * std::max(-low, high) / static_cast<float>(std::max(1, grid.middle() - 1)), 0, grid);
  const double most = grid.most(), scale = static_cast<double>(part) * (static_cast<double>(high) - low) / most;
  if (scale == 0) return stored(0, 0, grid);
  GroupFit fit = stored(scale, 0, grid);
  int zero = static_cast<int>(std::lrint(std::clamp(-static_cast<double>(part) * low / fit.scale, 0.0, most)));
  if (zero < grid.least_zero) {
    // The lowest code is not needed: the others must reach the top.
    zero = grid.least_zero;
    fit = stored(static_cast<double>(part) * high / (most - zero), zero, grid);
  }
  fit.zero = zero;
  return fit;
}

GroupFit fit_group(std::span<const float> weights, std::span<const float> importance, const IntegerGrid& grid) {
  GroupFit best = cover_range(weights, 1, grid);
  if (!grid.least_squares || !std::isfinite(best.scale)) return best;
  double least = std::numeric_limits<double>::infinity();
  const Parts parts = parts_of(grid.bits);
  for (int i = 0; i < parts.count; ++i) {
    const float part = 1 - (1 - parts.least) * static_cast<float>(i) / static_cast<float>(parts.count - 1);
    const GroupFit fit = cover_range(weights, part, grid);
    if (const double loss = round_all(weights, importance, fit, grid).loss; loss < least) least = loss, best = fit;
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    const GroupFit fit = refit(round_all(weights, importance, best, grid), best, grid);
    const double loss = round_all(weights, importance, fit, grid).loss;
    if (!(loss < least)) break;
    least = loss, best = fit;
  }
  return best;
}

IntegerMatrix::IntegerMatrix(int row_count, int col_count, const IntegerGrid& to)
    : rows(row_count), cols(col_count), grid(to) {
  codes.resize(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  scales.resize(static_cast<size_t>(rows) * static_cast<size_t>(groups()));
  zeros.resize(scales.size());
  group_of.resize(static_cast<size_t>(cols));
  for (int i = 0; i < cols; ++i) group_of[static_cast<size_t>(i)] = i / grid.group_of_row(cols);
}

GroupFit IntegerMatrix::fit_of(int row, int group) const {
  const size_t at = static_cast<size_t>(row) * static_cast<size_t>(groups()) + static_cast<size_t>(group);
  return {scales[at], zeros[at]};
}

void IntegerMatrix::set_fit(int row, int group, const GroupFit& fit) {
  const size_t at = static_cast<size_t>(row) * static_cast<size_t>(groups()) + static_cast<size_t>(group);
  scales[at] = fit.scale;
  zeros[at] = static_cast<uint8_t>(fit.zero);
}

std::span<uint8_t> IntegerMatrix::codes_of(int row) {
  return std::span(codes).subspan(static_cast<size_t>(row) * static_cast<size_t>(cols), static_cast<size_t>(cols));
}
std::span<const uint8_t> IntegerMatrix::codes_of(int row) const {
  return std::span(codes).subspan(static_cast<size_t>(row) * static_cast<size_t>(cols), static_cast<size_t>(cols));
}

void IntegerMatrix::dequantize(int row, std::span<float> out) const {
  const std::span<const uint8_t> from = codes_of(row);
  assert(out.size() == from.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = value_of(from[i], fit_of(row, group_of[i]));
}

FloatMatrix IntegerMatrix::dequantized() const {
  FloatMatrix all(rows, cols);
  for (int row = 0; row < rows; ++row) dequantize(row, all.row(row));
  return all;
}

IntegerMatrix round_to_nearest(const FloatMatrix& weights, const InputStatistics* inputs, const IntegerGrid& grid,
                               Team& team) {
  IntegerMatrix to(weights.rows, weights.cols, grid);
  const std::vector<float> by_inputs = inputs ? mean_squares(*inputs) : std::vector<float>();
  const auto group = static_cast<size_t>(grid.group_of_row(weights.cols));
  team.for_tiles(weights.rows, [&](int row, int) {
    const std::span<const float> from = weights.row(row);
    const std::span<uint8_t> codes = to.codes_of(row);
    const std::vector<float> by_size = by_inputs.empty() && grid.least_squares ? importance_of_sizes(from) : by_inputs;
    const std::span<const float> importance = by_size;
    for (size_t first = 0; first < from.size(); first += group) {
      const size_t count = std::min(group, from.size() - first);
      const GroupFit fit = fit_group(from.subspan(first, count),
                                     importance.empty() ? importance : importance.subspan(first, count), grid);
      to.set_fit(row, static_cast<int>(first / group), fit);
      for (size_t i = first; i < first + count; ++i) codes[i] = static_cast<uint8_t>(round_code(from[i], fit, grid));
    }
  });
  check_scales(to.scales, grid.scale_type);
  return to;
}

std::vector<float> mean_squares(const InputStatistics& inputs) {
  std::vector<float> means(static_cast<size_t>(inputs.cols), 1);
  if (inputs.rows == 0) return means;
  double sum = 0;
  for (const double square : inputs.squares) sum += square;
  if (sum == 0) return means;
  const double least = 1e-6 * sum / inputs.cols;
  for (size_t i = 0; i < means.size(); ++i)
    means[i] = static_cast<float>(std::max(inputs.squares[i], least) / static_cast<double>(inputs.rows));
  return means;
}

void check_scales(std::span<const float> scales, ScaleType type) {
  if (std::ranges::all_of(scales, [](float scale) { return std::isfinite(scale); })) return;
  throw unsupported("weights are too large for scales of {}; use a method with other scales, such as rtn-int8 or fp8",
                    type == ScaleType::kF16    ? "float16"
                    : type == ScaleType::kBf16 ? "bfloat16"
                                               : "float32");
}

}  // namespace quire
