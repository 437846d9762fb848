// Searches for the scale, or the scale and the minimum, under which a group of weights loses least: the sum of
// w * (x - rounded)^2 is as small as a bounded search makes it.
//
// Weighted least squares: for fixed codes the best scale is sum(w x q) / sum(w q^2), and with a minimum the solution of
// two equations; for a fixed scale the best codes are the nearest. Which codes to start from is searched over a grid of
// scales, as k-quants do (llama.cpp pull request 1684), here wider, from both signs, and followed by alternating the two.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "quant/fit/lanes.h"

namespace quire {

// What a scale d gains over zero: sum(w x^2) - sum(w (x - d q)^2) = 2 d xq - d^2 qq.
struct ScaleSums {
  Lanes xq{}, qq{};  // sum(w x q), sum(w q^2)

  Lanes scale() const { return xq * inverse_or_zero(qq); }
  Lanes gain(Lanes d) const { return d * (xq + xq - d * qq); }
};

// Of the numbers nearest to x / d.
template <int n, class Book>
ScaleSums sums_under(const GroupLanes<n>& g, const Book& book, Lanes inverse) {
  ScaleSums sums;
  for (int i = 0; i < n; ++i) {
    const Lanes q = book.nearest(g.x[i] * inverse);
    sums.xq += g.wx[i] * q;
    sums.qq += g.w[i] * q * q;
  }
  return sums;
}

// The value of the greatest magnitude in each lane.
template <int n>
Lanes extreme_of(const GroupLanes<n>& g) {
  Lanes extreme = g.x[0];
  for (int i = 1; i < n; ++i) extreme = choose(magnitude(g.x[i]) > magnitude(extreme), g.x[i], extreme);
  return extreme;
}

// A search for scales: the greatest weight is tried at these multiples of the book's ends, then codes and scale are
// improved in turns.
struct ScaleSteps {
  std::span<const float> at;
  int turns;
};

// The best scale of each lane, which may be negative; 0 for weights that are all 0 or below `tiny`.
template <int n, class Book>
Lanes search_scale(const GroupLanes<n>& g, const Book& book, const ScaleSteps& grid, float tiny) {
  const Lanes extreme = extreme_of(g), zero = in_all_lanes(0);
  const LaneChoice is_zero = magnitude(extreme) < in_all_lanes(tiny);
  const Lanes one_step = inverse_or_zero(choose(is_zero, zero, extreme));
  Lanes best_scale = zero, best_gain = zero;
  const auto try_scale = [&](Lanes inverse) {
    const ScaleSums sums = sums_under(g, book, inverse);
    const Lanes scale = sums.scale(), gain = scale * sums.xq;
    const LaneChoice better = gain > best_gain;
    best_scale = choose(better, scale, best_scale);
    best_gain = choose(better, gain, best_gain);
  };
  const bool symmetric = book.least == -book.most;  // then a negative scale gives the same numbers
  for (const float at : grid.at) {
    if (!symmetric) try_scale(one_step * in_all_lanes(at * book.least));
    try_scale(one_step * in_all_lanes(at * book.most));
  }
  for (int turn = 0; turn < grid.turns; ++turn) try_scale(inverse_or_zero(best_scale));
  return best_scale;
}

// What a scale d and a minimum m lose: sum(w (x - d q - m)^2).
struct AffineSums {
  Lanes w{}, x{}, xx{};  // sum(w), sum(w x), sum(w x^2): of the weights alone
  Lanes q{}, qq{}, xq{};

  Lanes loss(Lanes d, Lanes m) const {
    const Lanes two = in_all_lanes(2);
    return xx + d * (d * qq - two * xq) + m * (m * w + two * (d * q - x));
  }
};

struct AffineFit {
  Lanes scale, minimum;
};

template <int n>
AffineSums weight_sums(const GroupLanes<n>& g) {
  AffineSums sums;
  for (int i = 0; i < n; ++i) {
    sums.w += g.w[i];
    sums.x += g.wx[i];
    sums.xx += g.wx[i] * g.x[i];
  }
  return sums;
}

// Adds what depends on the codes nearest to x * inverse + offset.
template <int n>
void add_code_sums(const GroupLanes<n>& g, float most, Lanes inverse, Lanes offset, AffineSums& sums) {
  sums.q = sums.qq = sums.xq = Lanes{};
  const Lanes zero = in_all_lanes(0), top = in_all_lanes(most);
  for (int i = 0; i < n; ++i) {
    const Lanes q = round_lanes(least_of(greatest_of(g.x[i] * inverse + offset, zero), top)), wq = g.w[i] * q;
    sums.q += wq;
    sums.qq += wq * q;
    sums.xq += g.wx[i] * q;
  }
}

// The least-squares scale and minimum for fixed codes; with `not_above_zero` the minimum is at most 0.
inline AffineFit fit_codes(const AffineSums& s, bool not_above_zero) {
  const Lanes determinant = s.w * s.qq - s.q * s.q, zero = in_all_lanes(0);
  const LaneChoice all_equal =
      determinant <= in_all_lanes(1e-6f) * s.w * s.qq;  // the codes are: rounding is all there is
  const Lanes inverse = inverse_or_zero(choose(all_equal, zero, determinant));
  AffineFit fit{(s.w * s.xq - s.x * s.q) * inverse, (s.qq * s.x - s.q * s.xq) * inverse};
  if (!not_above_zero) return fit;
  const LaneChoice above = (fit.minimum > zero) | all_equal;
  fit.scale = choose(above, s.xq * inverse_or_zero(s.qq), fit.scale);
  fit.minimum = choose(above, zero, fit.minimum);
  return fit;
}

// at: how many steps the range of the weights is tried at, as multiples of `most`; where it is cut, at the top, at both
// ends, or at the bottom.
struct RangeSteps {
  std::span<const float> at;
  int turns;
};

// The best scale (not negative) and minimum of each lane for codes 0 .. most. Weights that are equal, or within `tiny` of
// each other, get scale 0.
template <int n>
AffineFit search_affine(const GroupLanes<n>& g, float most, bool not_above_zero, const RangeSteps& grid, float tiny) {
  const Lanes zero = in_all_lanes(0);
  Lanes low = g.x[0], high = g.x[0];
  for (int i = 1; i < n; ++i) low = least_of(low, g.x[i]), high = greatest_of(high, g.x[i]);
  if (not_above_zero) low = least_of(low, zero), high = greatest_of(high, zero);
  const Lanes range = high - low;
  const LaneChoice is_flat = range < in_all_lanes(tiny);
  const Lanes one_range = inverse_or_zero(choose(is_flat, zero, range));
  AffineSums sums = weight_sums(g);
  AffineFit best{zero, low};
  Lanes least_loss = sums.loss(best.scale, best.minimum);
  const auto try_codes = [&](Lanes inverse, Lanes offset) {
    add_code_sums(g, most, inverse, offset, sums);
    const AffineFit fit = fit_codes(sums, not_above_zero);
    const Lanes loss = sums.loss(fit.scale, fit.minimum);
    const LaneChoice better = (loss < least_loss) & (fit.scale > zero);
    best.scale = choose(better, fit.scale, best.scale);
    best.minimum = choose(better, fit.minimum, best.minimum);
    least_loss = choose(better, loss, least_loss);
  };
  for (const float at : grid.at) {
    const Lanes inverse = one_range * in_all_lanes(at * most), first = -low * inverse;
    const float cut = (at - 1) * most;  // steps of the range that have no code
    for (const float share : {0.0f, 0.5f, 1.0f}) try_codes(inverse, first - in_all_lanes(cut * share));
  }
  for (int turn = 0; turn < grid.turns; ++turn) {
    const Lanes inverse = inverse_or_zero(best.scale);
    try_codes(inverse, -best.minimum * inverse);
  }
  best.scale = choose(is_flat, zero, best.scale);
  return best;
}

}  // namespace quire
