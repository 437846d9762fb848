// Groups whose integer scales share a float16.
//
// The groups are searched alone first. Then the shared float16 is chosen so that the integers near the groups' own scales
// lose least, and both are improved in turns: integers one step around, by the true loss of the group; the float16 by
// least squares over all codes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "quant/block_type.h"
#include "quant/fit/books.h"
#include "quant/fit/fit.h"
#include "quant/fit/grids.h"

namespace quire {
namespace {

constexpr float kLeastScaled = 0x1p-30f;  // of a group: below this, nothing is left of it under a float16
constexpr int kTurns = 3;

template <int n>
constexpr int kQuads = kSuperInputs / n / kLanes;
template <int n>
using Integers = std::array<Lanes, static_cast<size_t>(kQuads<n>)>;  // of each group

float sum_of(Lanes x) { return (x[0] + x[1]) + (x[2] + x[3]); }
Lanes within(Lanes x, const IntegerBook& range) {
  return least_of(greatest_of(x, in_all_lanes(range.least)), in_all_lanes(range.most));
}

// The number d for which d * (integers of `range`) come closest to the groups' scales. counts: what the square of a
// scale's error costs.
template <int n>
float search_shared(const Integers<n>& scales, const Integers<n>& counts, const IntegerBook& range) {
  constexpr int kGroups = kSuperInputs / n;
  std::array<float, kLanes * kGroups> x{}, w;  // the other lanes stay empty
  w.fill(1);
  std::memcpy(x.data(), scales.data(), sizeof scales);
  std::memcpy(w.data(), counts.data(), sizeof counts);
  const float most = *std::ranges::max_element(w.begin(), w.begin() + kGroups);
  for (float& weight : w) weight = most > 0 ? weight / most : 1;
  return search_scale(GroupLanes<kGroups>(x.data(), w.data()), range, kManyCodes, 0x1p-40f)[0];
}

// The integers that the groups of a super-block have under `shared`, and what they gain.
template <int n>
struct Shared {
  uint16_t half = 0;
  Integers<n> integers{};
  float gain = 0;
};

template <int n, class Book>
bool fit_shared(const Book& book, const IntegerBook& range, const ScaleSteps& grid, std::span<const float> x,
                std::span<const float> w, const CodedRow& out) {
  std::array<GroupLanes<n>, static_cast<size_t>(kQuads<n>)> quads = [&]<size_t... i>(std::index_sequence<i...>) {
    return std::array{GroupLanes<n>(&x[i * kLanes * n], &w[i * kLanes * n])...};
  }
  (std::make_index_sequence<static_cast<size_t>(kQuads<n>)>());
  Integers<n> scales, counts;
  for (size_t i = 0; i < quads.size(); ++i) {
    scales[i] = search_scale(quads[i], book, grid, kLeastScaled);
    counts[i] = sums_under(quads[i], book, inverse_or_zero(scales[i])).qq;
  }
  float shared = search_shared<n>(scales, counts, range);
  Shared<n> best, now;
  for (int turn = 0; turn < kTurns; ++turn) {
    now.half = f32_to_f16(shared);
    now.gain = 0;
    const float d = f16_to_f32(now.half);
    if (!std::isfinite(d)) return false;
    if (d == 0) break;
    float xk = 0, kk = 0;  // sum(w x k q), sum(w (k q)^2)
    for (size_t i = 0; i < quads.size(); ++i) {
      const Lanes middle = turn == 0 ? range.nearest(scales[i] * in_all_lanes(1 / d)) : now.integers[i];
      Lanes best_gain = in_all_lanes(-1), best_xk{}, best_kk{};
      for (const float step : {0.0f, -1.0f, 1.0f}) {
        const Lanes k = within(middle + in_all_lanes(step), range), scale = k * in_all_lanes(d);
        const ScaleSums sums = sums_under(quads[i], book, inverse_or_zero(scale));
        const Lanes gain = sums.gain(scale);
        const LaneChoice better = gain > best_gain;
        best_gain = choose(better, gain, best_gain);
        best_xk = choose(better, k * sums.xq, best_xk);
        best_kk = choose(better, k * k * sums.qq, best_kk);
        now.integers[i] = choose(better, k, now.integers[i]);
      }
      now.gain += sum_of(best_gain);
      xk += sum_of(best_xk);
      kk += sum_of(best_kk);
    }
    if (now.gain > best.gain) best = now;
    if (!(kk > 0)) break;
    shared = xk / kk;
  }
  out.supers[0] = best.half;
  const Lanes d = in_all_lanes(f16_to_f32(best.half));
  for (size_t i = 0; i < quads.size(); ++i) {
    const Lanes inverse = inverse_or_zero(best.integers[i] * d);
    for (size_t lane = 0; lane < kLanes; ++lane)
      out.scales[i * kLanes + lane] = static_cast<uint8_t>(static_cast<int>(best.integers[i][lane]));
    for (size_t j = 0; j < n; ++j) {
      const Lanes number = book.nearest(quads[i].x[j] * inverse);
      for (size_t lane = 0; lane < kLanes; ++lane) out.codes[(i * kLanes + lane) * n + j] = book.code(number[lane]);
    }
  }
  return true;
}

// The same with minima.
template <int n>
struct SharedAffine {
  uint16_t scale = 0, minimum = 0;  // float16
  Integers<n> scales{}, minima{};
  float loss = INFINITY;
};

// Sums over a super-block's codes, from which least squares give both float16 numbers.
struct SharedSums {
  float kk = 0, km = 0, mm = 0, xk = 0, xm = 0;

  void add(Lanes k, Lanes m, const AffineSums& s) {
    kk += sum_of(k * k * s.qq);
    km += sum_of(k * m * s.q);
    mm += sum_of(m * m * s.w);
    xk += sum_of(k * s.xq);
    xm += sum_of(m * s.x);
  }
  // x = d k q - e m: false if they are not determined.
  bool solve(float& d, float& e) const {
    const float determinant = kk * mm - km * km;
    if (!(determinant > 1e-6f * kk * mm)) {
      if (!(kk > 0) || mm > 0) return false;
      d = xk / kk;
      return true;
    }
    const float scale = (xk * mm - xm * km) / determinant, minimum = (xk * km - xm * kk) / determinant;
    if (!(scale > 0) || !(minimum >= 0)) return false;
    d = scale, e = minimum;
    return true;
  }
};

template <int n>
bool fit_shared_affine(float most, const IntegerBook& range, const RangeSteps& grid, std::span<const float> x,
                       std::span<const float> w, const CodedRow& out) {
  std::array<GroupLanes<n>, static_cast<size_t>(kQuads<n>)> quads = [&]<size_t... i>(std::index_sequence<i...>) {
    return std::array{GroupLanes<n>(&x[i * kLanes * n], &w[i * kLanes * n])...};
  }
  (std::make_index_sequence<static_cast<size_t>(kQuads<n>)>());
  std::array<AffineSums, static_cast<size_t>(kQuads<n>)> weights;
  Integers<n> scales, minima, scale_counts, minimum_counts;
  for (size_t i = 0; i < quads.size(); ++i) {
    const AffineFit fit = search_affine(quads[i], most, true, grid, kLeastScaled);
    scales[i] = fit.scale;
    minima[i] = -fit.minimum;
    weights[i] = weight_sums(quads[i]);
    AffineSums sums = weights[i];
    const Lanes inverse = inverse_or_zero(fit.scale);
    add_code_sums(quads[i], most, inverse, minima[i] * inverse, sums);
    scale_counts[i] = sums.qq;
    minimum_counts[i] = sums.w;
  }
  float scale = search_shared<n>(scales, scale_counts, range),
        minimum = search_shared<n>(minima, minimum_counts, range);
  SharedAffine<n> best, now;
  for (int turn = 0; turn < kTurns; ++turn) {
    now.scale = f32_to_f16(scale);
    now.minimum = f32_to_f16(minimum);
    now.loss = 0;
    const float d = f16_to_f32(now.scale), e = f16_to_f32(now.minimum);
    if (!std::isfinite(d) || !std::isfinite(e)) return false;
    const Lanes one_scale = in_all_lanes(d > 0 ? 1 / d : 0), one_minimum = in_all_lanes(e > 0 ? 1 / e : 0);
    SharedSums shared;
    for (size_t i = 0; i < quads.size(); ++i) {
      const Lanes k0 = turn == 0 ? range.nearest(scales[i] * one_scale) : now.scales[i],
                  m0 = turn == 0 ? range.nearest(minima[i] * one_minimum) : now.minima[i];
      Lanes least = in_all_lanes(INFINITY);
      AffineSums chosen = weights[i];
      const auto try_integers = [&](Lanes k, Lanes m) {
        const Lanes step = k * in_all_lanes(d), lowest = m * in_all_lanes(e), inverse = inverse_or_zero(step);
        AffineSums sums = weights[i];
        add_code_sums(quads[i], most, inverse, lowest * inverse, sums);
        const Lanes loss = sums.loss(step, -lowest);
        const LaneChoice better = loss < least;
        least = choose(better, loss, least);
        now.scales[i] = choose(better, k, now.scales[i]);
        now.minima[i] = choose(better, m, now.minima[i]);
        chosen.q = choose(better, sums.q, chosen.q);
        chosen.qq = choose(better, sums.qq, chosen.qq);
        chosen.xq = choose(better, sums.xq, chosen.xq);
        return sums;
      };
      for (const float step : {0.0f, -1.0f, 1.0f}) {
        const Lanes k = within(k0 + in_all_lanes(step), range);
        const AffineSums sums = try_integers(k, m0);
        // The minimum that suits these codes best.
        const Lanes wanted = (k * in_all_lanes(d) * sums.q - sums.x) * inverse_or_zero(sums.w);
        try_integers(k, range.nearest(wanted * one_minimum));
      }
      now.loss += sum_of(least);
      shared.add(now.scales[i], now.minima[i], chosen);
    }
    if (now.loss < best.loss) best = now;
    if (!shared.solve(scale, minimum)) break;
  }
  out.supers[0] = best.scale;
  out.super_minima[0] = best.minimum;
  const float d = f16_to_f32(best.scale), e = f16_to_f32(best.minimum);
  const IntegerBook book{0, most};
  for (size_t i = 0; i < quads.size(); ++i) {
    const Lanes inverse = inverse_or_zero(best.scales[i] * in_all_lanes(d)), lowest = best.minima[i] * in_all_lanes(e);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      out.scales[i * kLanes + lane] = static_cast<uint32_t>(best.scales[i][lane]);
      out.minima[i * kLanes + lane] = static_cast<uint32_t>(best.minima[i][lane]);
    }
    for (size_t j = 0; j < n; ++j) {
      const Lanes q = book.nearest((quads[i].x[j] + lowest) * inverse);
      for (size_t lane = 0; lane < kLanes; ++lane)
        out.codes[(i * kLanes + lane) * n + j] = static_cast<uint8_t>(q[lane]);
    }
  }
  return true;
}

}  // namespace

bool fit_super(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
               const CodedRow& out) {
  const PanelFormat& f = type.format;
  constexpr IntegerBook kSixBits{-32, 31}, kEightBits{-128, 127};
  switch (f.codes) {
    case Codes::kTable4:
      return fit_shared<32>(table_book(f), kSixBits, kManyCodes, weights, importance, out);
    case Codes::kU3:
      return fit_shared<16>(integer_book(f), kSixBits, kFewCodes, weights, importance, out);
    default:
      return fit_shared<16>(integer_book(f), kEightBits, kMostCodes, weights, importance, out);
  }
}

bool fit_super_affine(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
                      const CodedRow& out) {
  const PanelFormat& f = type.format;
  const float most = integer_book(f).most;
  if (f.codes == Codes::kU2) return fit_shared_affine<16>(most, {0, 15}, kFewAffineCodes, weights, importance, out);
  const RangeSteps& grid = f.codes == Codes::kU5 ? kMostAffineCodes : kManyAffineCodes;
  return fit_shared_affine<32>(most, {0, 63}, grid, weights, importance, out);
}

}  // namespace quire
