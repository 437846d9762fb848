#include "quantize/solve/smoothquant.h"

#include <algorithm>
#include <cmath>

#include "quantize/solve/input_algebra.h"

namespace quire {
namespace {

constexpr int kAlphaSteps = 20;
constexpr float kUsualAlpha = 0.5f, kLeastMagnitude = 1e-5f;

// The greatest of the inputs that share a factor.
std::vector<float> tied_largest(std::span<const float> largest, std::span<const int> tied) {
  std::vector<float> all(largest.begin(), largest.end());
  if (tied.empty()) return all;
  std::vector<float> most(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    float& of = most[static_cast<size_t>(tied[i])];
    of = std::max(of, all[i]);
  }
  for (size_t i = 0; i < all.size(); ++i) all[i] = most[static_cast<size_t>(tied[i])];
  return all;
}

std::vector<float> smooth_scales(std::span<const float> inputs, std::span<const float> weights, float alpha) {
  std::vector<float> scales;
  for (size_t i = 0; i < inputs.size(); ++i)
    scales.push_back(std::pow(std::max(inputs[i], kLeastMagnitude), alpha) /
                     std::pow(std::max(weights[i], kLeastMagnitude), 1 - alpha));
  return scales;
}

double squared_distance(const FloatMatrix& a, const FloatMatrix& b) {
  double sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double difference = static_cast<double>(a.values[i]) - static_cast<double>(b.values[i]);
    sum += difference * difference;
  }
  return sum;
}

// Of the outputs for the sampled inputs, with both sides in int8.
double int8_error(const FloatMatrix& weights, const FloatMatrix& inputs, const FloatMatrix& outputs,
                  std::span<const float> scales) {
  FloatMatrix w = weights, x = inputs;
  const auto cols = static_cast<size_t>(w.cols);
  for (size_t i = 0; i < w.values.size(); ++i) w.values[i] *= scales[i % cols];
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] /= scales[i % cols];
  round_rows_to_int8(w);
  round_rows_to_int8(x);
  return squared_distance(multiply_transposed(x, w), outputs);
}

}  // namespace

IntegerGrid int8_rows(ScaleType type) { return {.bits = 8, .group = 0, .symmetric = true, .scale_type = type}; }

void round_rows_to_int8(FloatMatrix& matrix) {
  const IntegerGrid grid = int8_rows(ScaleType::kF32);
  for (int r = 0; r < matrix.rows; ++r) {
    const std::span<float> row = matrix.row(r);
    const GroupFit fit = cover_range(row, 1, grid);
    for (float& x : row) x = value_of(round_code(x, fit, grid), fit);
  }
}

InputScales search_smooth_scales(const FloatMatrix& weights, std::span<const float> largest_weights,
                                 const InputStatistics& inputs, std::span<const int> tied, std::optional<float> alpha,
                                 Team& team) {
  const std::vector<float> x = tied_largest(inputs.largest, tied), w = tied_largest(largest_weights, tied);
  if (alpha || inputs.sample.empty()) return {.scales = smooth_scales(x, w, alpha.value_or(kUsualAlpha))};
  FloatMatrix sample;
  sample.cols = inputs.cols;
  sample.rows = static_cast<int>(inputs.sample.size()) / inputs.cols;
  sample.values = inputs.sample;
  const FloatMatrix outputs = multiply_transposed(sample, weights);
  std::vector<InputScales> all(kAlphaSteps + 2);
  team.for_tiles(static_cast<int>(all.size()), [&](int i, int) {
    InputScales& one = all[static_cast<size_t>(i)];
    one.scales =
        i > kAlphaSteps ? std::vector<float>(x.size(), 1.0f) : smooth_scales(x, w, static_cast<float>(i) / kAlphaSteps);
    one.error = int8_error(weights, sample, outputs, one.scales);
  });
  InputScales best = *std::ranges::min_element(all, {}, &InputScales::error);
  best.plain_error = all.back().error;
  return best;
}

}  // namespace quire
