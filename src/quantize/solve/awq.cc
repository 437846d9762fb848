#include "quantize/solve/awq.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "quantize/solve/input_algebra.h"

namespace quire {
namespace {

constexpr int kExponents = 20;  // as in the paper's code
constexpr float kLeastScale = 1e-4f;
constexpr int kClipRows = 32;  // that share the products with the Gram matrix
constexpr float kClipParts[] = {1, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f, 0.65f, 0.6f, 0.55f, 0.5f};

// Means over the inputs that share a factor.
std::vector<float> tie(std::vector<float> means, std::span<const int> tied) {
  if (tied.empty()) return means;
  std::vector<double> sums(means.size()), counts(means.size());
  for (size_t i = 0; i < means.size(); ++i) {
    sums[static_cast<size_t>(tied[i])] += static_cast<double>(means[i]);
    counts[static_cast<size_t>(tied[i])] += 1;
  }
  for (size_t i = 0; i < means.size(); ++i) {
    const auto of = static_cast<size_t>(tied[i]);
    means[i] = static_cast<float>(sums[of] / counts[of]);
  }
  return means;
}

std::vector<float> mean_magnitudes(const FloatMatrix& weights) {
  std::vector<double> sums(static_cast<size_t>(weights.cols));
  for (int r = 0; r < weights.rows; ++r) {
    const std::span<const float> row = weights.row(r);
    for (size_t i = 0; i < row.size(); ++i) sums[i] += static_cast<double>(std::fabs(row[i]));
  }
  std::vector<float> means;
  for (const double sum : sums) means.push_back(static_cast<float>(sum / std::max(1, weights.rows)));
  return means;
}

// inputs^exponent / weights^(1 - exponent), so that the greatest and the least are as far from 1. weights: empty: without.
std::vector<float> candidate(std::span<const float> inputs, std::span<const float> weights, float exponent) {
  std::vector<float> scales;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const float up = std::pow(inputs[i], exponent),
                down = weights.empty() ? 1 : std::pow(std::max(weights[i], 1e-8f), 1 - exponent);
    scales.push_back(std::max(up / down, kLeastScale));
  }
  const auto [least, most] = std::ranges::minmax(scales);
  const float middle = std::sqrt(least) * std::sqrt(most);
  for (float& scale : scales) scale /= middle;
  return scales;
}

double error_under(const FloatMatrix& weights, const InputStatistics& inputs, const IntegerGrid& grid,
                   std::span<const float> scales) {
  FloatMatrix differences(weights.rows, weights.cols);
  const auto group = static_cast<size_t>(grid.group_of_row(weights.cols));
  std::vector<float> scaled(scales.size());
  for (int r = 0; r < weights.rows; ++r) {
    const std::span<const float> from = weights.row(r);
    const std::span<float> difference = differences.row(r);
    for (size_t i = 0; i < scaled.size(); ++i) scaled[i] = from[i] * scales[i];
    for (size_t first = 0; first < scaled.size(); first += group) {
      const size_t end = std::min(first + group, scaled.size());
      const GroupFit fit = cover_range(std::span(scaled).subspan(first, end - first), 1, grid);
      for (size_t i = first; i < end; ++i)
        difference[i] = (scaled[i] - value_of(round_code(scaled[i], fit, grid), fit)) / scales[i];
    }
  }
  return squared_output_error(differences, inputs.gram);
}

// Chooses the ranges of some rows' groups.
class ClipTile {
 public:
  ClipTile(const FloatMatrix& weights, const InputStatistics& inputs, const IntegerGrid& grid)
      : weights_(weights), inputs_(inputs), grid_(grid), importance_(mean_squares(inputs)) {}

  void run(int first_row, int rows, IntegerMatrix& to) {
    const int cols = weights_.cols, group = grid_.group_of_row(cols);
    FloatMatrix differences(rows, cols);
    for (int r = 0; r < rows; ++r) {
      for (int g = 0; g < to.groups(); ++g) {
        const auto first = at(g * group), count = at(std::min(group, cols - g * group));
        const std::span<const float> from = weights_.row(first_row + r).subspan(first, count);
        const GroupFit fit = cover_range(from, 1, grid_);
        to.set_fit(first_row + r, g, fit);
        for (size_t i = 0; i < count; ++i)
          differences.row(r)[first + i] = from[i] - value_of(round_code(from[i], fit, grid_), fit);
      }
    }
    // products = differences * Gram, kept up to date.
    FloatMatrix products(rows, cols);
    for (float& d : differences.values) d = -d;
    subtract_product(rows, cols, cols, differences.values.data(), inputs_.gram.data(), cols,
                     {products.values.data(), cols});
    for (float& d : differences.values) d = -d;
    std::vector<float> steps(at(rows) * at(group));
    for (int g = 0; g < to.groups(); ++g) {
      const int first = g * group, count = std::min(group, cols - first);
      for (int r = 0; r < rows; ++r)
        choose(first_row + r, g, differences.row(r).subspan(at(first), at(count)),
               products.row(r).subspan(at(first), at(count)), std::span(steps).subspan(at(r) * at(count), at(count)),
               to);
      subtract_product(rows, count, cols, steps.data(), inputs_.gram.data() + at(first) * at(cols), cols,
                       {products.values.data(), cols});
    }
    for (int r = first_row; r < first_row + rows; ++r) {
      for (size_t i = 0; i < at(cols); ++i)
        to.codes_of(r)[i] =
            static_cast<uint8_t>(round_code(weights_.row(r)[i], to.fit_of(r, static_cast<int>(i) / group), grid_));
    }
  }

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }

  // Sets the best range of a group. step: what the differences fall by.
  void choose(int row, int g, std::span<const float> difference, std::span<const float> product, std::span<float> step,
              IntegerMatrix& to) {
    const size_t first = at(g) * at(grid_.group_of_row(weights_.cols)), count = difference.size();
    const std::span<const float> from = weights_.row(row).subspan(first, count);
    std::ranges::fill(step, 0.0f);
    std::vector<float>& change = change_;
    change.resize(count);
    double least = 0;
    const auto consider = [&](const GroupFit& fit) {
      for (size_t i = 0; i < count; ++i)
        change[i] = difference[i] - (from[i] - value_of(round_code(from[i], fit, grid_), fit));
      // Of the squared error, (d - c)^T G (d - c) - d^T G d.
      double gain = 0;
      for (size_t i = 0; i < count; ++i) {
        if (change[i] == 0) continue;
        const float* const gram = inputs_.gram.data() + (first + i) * at(weights_.cols) + first;
        float sum = 0;
        for (size_t k = 0; k < count; ++k) sum += gram[k] * change[k];
        gain += static_cast<double>(change[i]) * static_cast<double>(sum - 2 * product[i]);
      }
      if (!(gain < least)) return;
      least = gain;
      std::ranges::copy(change, step.begin());
      to.set_fit(row, g, fit);
    };
    for (const float part : kClipParts) consider(cover_range(from, part, grid_));
    IntegerGrid squares = grid_;
    squares.least_squares = true;
    consider(fit_group(from, std::span(importance_).subspan(first, count), squares));
  }

  const FloatMatrix& weights_;
  const InputStatistics& inputs_;
  const IntegerGrid& grid_;
  std::vector<float> importance_, change_;
};

}  // namespace

InputScales search_awq_scales(const FloatMatrix& weights, const InputStatistics& inputs, const IntegerGrid& grid,
                              std::span<const int> tied, Team& team) {
  const auto cols = static_cast<size_t>(weights.cols);
  assert(inputs.rows > 0 && inputs.gram.size() == cols * cols);
  std::vector<float> means;
  for (const double sum : inputs.magnitudes)
    means.push_back(static_cast<float>(sum / static_cast<double>(inputs.rows)));
  means = tie(std::move(means), tied);
  const std::vector<float> weight_means = tie(mean_magnitudes(weights), tied);
  std::vector<InputScales> all(2 * kExponents);
  team.for_tiles(2 * kExponents, [&](int i, int) {
    const float exponent = static_cast<float>(i % kExponents) / kExponents;
    InputScales& one = all[static_cast<size_t>(i)];
    one.scales = candidate(means, i < kExponents ? std::span<const float>() : weight_means, exponent);
    one.error = error_under(weights, inputs, grid, one.scales);
  });
  InputScales best = *std::ranges::min_element(all, {}, &InputScales::error);
  best.plain_error = all.front().error;  // exponent 0 without weights: all 1
  return best;
}

IntegerMatrix round_with_clipping(const FloatMatrix& weights, const InputStatistics& inputs, const IntegerGrid& grid,
                                  Team& team) {
  IntegerMatrix to(weights.rows, weights.cols, grid);
  std::vector<ClipTile> workers(static_cast<size_t>(team.size()), ClipTile(weights, inputs, grid));
  team.for_tiles((weights.rows + kClipRows - 1) / kClipRows, [&](int tile, int thread) {
    const int first = tile * kClipRows;
    workers[static_cast<size_t>(thread)].run(first, std::min(kClipRows, weights.rows - first), to);
  });
  check_scales(to.scales, grid.scale_type);
  return to;
}

}  // namespace quire
