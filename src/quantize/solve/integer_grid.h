// Integers with a scale and a zero point for each group of weights: the grid of GPTQ, AWQ, SmoothQuant, and of rounding to
// nearest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/team.h"
#include "quantize/input_statistics.h"
#include "quantize/solve/float_matrix.h"

namespace quire {

// How a format stores scales. Solvers round a scale to it first and choose codes for the rounded one.
enum class ScaleType : uint8_t { kF32, kF16, kBf16 };
float rounded_scale(float scale, ScaleType type);  // infinite if it is too large for the type

// A weight is scale * (code - zero), for codes 0 .. 2^bits - 1.
struct IntegerGrid {
  int bits = 4;           // 2, 3, 4 or 8
  int group = 0;          // inputs under a scale; 0: all of a row. The last group of a row may be smaller.
  bool symmetric = true;  // the zero point is 2^(bits - 1)
  int least_zero = 0;     // of zero points; 1 for formats that store one less
  // Searches for the range that loses least, sum(importance * error^2), instead of covering the extreme weights.
  bool least_squares = false;
  ScaleType scale_type = ScaleType::kF32;

  int most() const { return (1 << bits) - 1; }
  int middle() const { return 1 << (bits - 1); }
  int group_of_row(int cols) const { return group > 0 ? group : cols; }
  int groups(int cols) const { return (cols + group_of_row(cols) - 1) / group_of_row(cols); }
};

struct GroupFit {
  float scale = 1;  // positive, as stored; 1 for weights that are all 0
  int zero = 0;
};

// Covers part of the range of the weights: `part` of their least and greatest. Symmetric grids cover the greatest
// magnitude.
GroupFit cover_range(std::span<const float> weights, float part, const IntegerGrid& grid);

// cover_range() of all, or the best of many parts, then improved by least squares in turns with rounding. importance: of
// each weight, not negative; empty: all count the same.
GroupFit fit_group(std::span<const float> weights, std::span<const float> importance, const IntegerGrid& grid);

// The nearest code.
inline int round_code(float weight, const GroupFit& fit, const IntegerGrid& grid) {
  constexpr float kRound = 0x1.8p23f;  // adding and subtracting it rounds to nearest even, for magnitudes below 2^22
  const float steps = weight / fit.scale, most = static_cast<float>(grid.most()),
              bounded = steps > -most ? (steps < most ? steps : most) : -most;
  const int code = static_cast<int>((bounded + kRound) - kRound) + fit.zero;
  return code < 0 ? 0 : code > grid.most() ? grid.most() : code;
}
inline float value_of(int code, const GroupFit& fit) { return fit.scale * static_cast<float>(code - fit.zero); }

// A matrix on an integer grid.
struct IntegerMatrix {
  int rows = 0, cols = 0;
  IntegerGrid grid;
  std::vector<uint8_t> codes;     // [rows, cols], in the order of the model's inputs
  std::vector<float> scales;      // [rows, groups]
  std::vector<uint8_t> zeros;     // [rows, groups]
  std::vector<int32_t> group_of;  // [cols]: the group that an input is in

  IntegerMatrix(int row_count, int col_count, const IntegerGrid& to);  // groups of neighbours; codes and scales are 0

  int groups() const { return grid.groups(cols); }
  GroupFit fit_of(int row, int group) const;
  void set_fit(int row, int group, const GroupFit& fit);
  std::span<uint8_t> codes_of(int row);
  std::span<const uint8_t> codes_of(int row) const;
  void dequantize(int row, std::span<float> out) const;  // out: [cols]
  FloatMatrix dequantized() const;
};

// Rounds each weight to the nearest code. inputs: their mean squares are the importance of the least-squares search; null:
// all inputs count the same. Weights must be finite. Throws Error if a scale is too large for its type.
IntegerMatrix round_to_nearest(const FloatMatrix& weights, const InputStatistics* inputs, const IntegerGrid& grid,
                               Team& team);

// Mean squares of inputs, [cols]; all ones if no rows came. Inputs that were always 0 count a little, so that their
// weights are not left to chance.
std::vector<float> mean_squares(const InputStatistics& inputs);

// Throws Error if a scale is infinite: the weights are too large for scales of this type.
void check_scales(std::span<const float> scales, ScaleType type);

}  // namespace quire
