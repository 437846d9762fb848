#include "quantize/solve/gptq.h"

#include <algorithm>
#include <cassert>
#include <vector>

namespace quire {
namespace {

constexpr int kTileRows = 32;  // outputs, which do not depend on each other
constexpr int kBlockCols =
    128;  // inputs whose errors are moved to later blocks together, as in the paper (section 3.3)

// Quantizes some rows.
class GptqTile {
 public:
  GptqTile(const FloatMatrix& weights, const InverseFactor& factor, const IntegerGrid& grid, bool static_groups)
      : weights_(weights), factor_(factor), grid_(grid), static_groups_(static_groups), cols_(weights.cols) {
    moved_.resize(static_cast<size_t>(kTileRows) * static_cast<size_t>(cols_));
    errors_.resize(static_cast<size_t>(kTileRows) * kBlockCols);
    costs_.resize(static_cast<size_t>(cols_));
    for (int i = 0; i < cols_; ++i) costs_[at(i)] = 1 / (pivot(i) * pivot(i));
    costs_in_order_.resize(at(cols_));
    for (int i = 0; i < cols_; ++i) costs_in_order_[at(factor.order[at(i)])] = costs_[at(i)];
  }

  void run(int first_row, int rows, IntegerMatrix& to) {
    for (int r = 0; r < rows; ++r) {
      const std::span<const float> from = weights_.row(first_row + r);
      float* const row = moved_row(r);
      for (int i = 0; i < cols_; ++i) {
        const auto input = at(factor_.order[at(i)]);
        row[i] = factor_.dead[input] ? 0 : from[input];
      }
      if (static_groups_) fit_static(first_row + r, to);
    }
    for (int first = 0; first < cols_; first += kBlockCols) {
      const int count = std::min(kBlockCols, cols_ - first), rest = cols_ - first - count;
      for (int r = 0; r < rows; ++r) quantize_block(first_row + r, r, first, count, to);
      if (rest > 0)
        subtract_product(rows, count, rest, errors_.data(), factor_.row(first).data() + first + count, cols_,
                         {moved_row(0) + first + count, cols_});
    }
  }

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }
  float pivot(int i) const { return factor_.row(i)[at(i)]; }
  float* moved_row(int r) { return moved_.data() + at(r) * at(cols_); }

  void fit_static(int row, IntegerMatrix& to) const {
    const int group = grid_.group_of_row(cols_);
    const std::span<const float> from = weights_.row(row);
    for (int g = 0; g < to.groups(); ++g) {
      const size_t first = at(g * group), count = at(std::min(group, cols_ - g * group));
      to.set_fit(row, g,
                 fit_group(from.subspan(first, count), std::span(costs_in_order_).subspan(first, count), grid_));
    }
  }

  // Inputs first .. first + count of one row. Errors divided by their pivots go to errors_, [rows, count].
  void quantize_block(int row, int r, int first, int count, IntegerMatrix& to) {
    const int group = grid_.group_of_row(cols_);
    float* const moved = moved_row(r);
    float* const errors = errors_.data() + at(r) * at(count);
    const std::span<uint8_t> codes = to.codes_of(row);
    GroupFit fit;
    for (int i = first; i < first + count; ++i) {
      const int input = factor_.order[at(i)], of = static_groups_ ? input / group : i / group;
      if (!static_groups_ && i % group == 0) {
        // Errors of earlier inputs of this block have moved within it only: the group may reach further.
        const int end = std::min(cols_, i + group);
        fit = fit_group(move_ahead(moved, errors, first, count, i, end), std::span(costs_).subspan(at(i), at(end - i)),
                        grid_);
        to.set_fit(row, of, fit);
      } else if (static_groups_ || i == first) {
        fit = to.fit_of(row, of);
      }
      const int code = round_code(moved[i], fit, grid_);
      codes[at(input)] = static_cast<uint8_t>(code);
      const float error = (moved[i] - value_of(code, fit)) / pivot(i);
      errors[i - first] = error;
      const float* const u = factor_.row(i).data();
      for (int k = i + 1; k < first + count; ++k) moved[k] -= error * u[k];
    }
  }

  // The weights of inputs begin .. end as they are once all errors so far have reached them.
  std::span<const float> move_ahead(const float* moved, const float* errors, int first, int count, int begin, int end) {
    if (end <= first + count) return {moved + begin, at(end - begin)};
    ahead_.assign(moved + begin, moved + end);
    for (int i = first; i < begin; ++i) {
      const float* const u = factor_.row(i).data();
      for (int k = first + count; k < end; ++k) ahead_[at(k - begin)] -= errors[i - first] * u[k];
    }
    return ahead_;
  }

  const FloatMatrix& weights_;
  const InverseFactor& factor_;
  const IntegerGrid& grid_;
  const bool static_groups_;
  const int cols_;
  std::vector<float> moved_;                   // [kTileRows, cols], in the factor's order
  std::vector<float> errors_;                  // [rows, inputs of a block]
  std::vector<float> costs_, costs_in_order_;  // of a squared error: in the factor's order, and in the model's
  std::vector<float> ahead_;
};

}  // namespace

IntegerMatrix solve_gptq(const FloatMatrix& weights, const InverseFactor& factor, const IntegerGrid& grid,
                         bool static_groups, Team& team) {
  assert(factor.cols == weights.cols);
  IntegerMatrix to(weights.rows, weights.cols, grid);
  if (!static_groups) {
    const int group = grid.group_of_row(weights.cols);
    for (int i = 0; i < weights.cols; ++i)
      to.group_of[static_cast<size_t>(factor.order[static_cast<size_t>(i)])] = i / group;
  }
  const int tiles = (weights.rows + kTileRows - 1) / kTileRows;
  std::vector<GptqTile> workers(static_cast<size_t>(team.size()), GptqTile(weights, factor, grid, static_groups));
  team.for_tiles(tiles, [&](int tile, int thread) {
    const int first = tile * kTileRows;
    workers[static_cast<size_t>(thread)].run(first, std::min(kTileRows, weights.rows - first), to);
  });
  check_scales(to.scales, grid.scale_type);
  return to;
}

}  // namespace quire
