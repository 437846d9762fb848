// Groups with scales of their own.
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>

#include "base/float8.h"
#include "base/half.h"
#include "quant/block_type.h"
#include "quant/fit/books.h"
#include "quant/fit/fit.h"
#include "quant/fit/grids.h"

namespace quire {
namespace {

// Half of float16's least number: of what is smaller, nothing is left.
constexpr float kLeastHalf = 0x1p-25f;

// Writes the codes of four groups of n, nearest to x * inverse.
template <int n, class Book>
void put_codes(const GroupLanes<n>& g, const Book& book, Lanes inverse, uint8_t* codes) {
  for (int i = 0; i < n; ++i) {
    const Lanes number = book.nearest(g.x[i] * inverse);
    for (int lane = 0; lane < kLanes; ++lane) codes[lane * n + i] = book.code(number[lane]);
  }
}

// Rounds scales to float16. False if one becomes infinite.
bool round_to_half(Lanes& scales, uint32_t* bits) {
  bool finite = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint16_t half = f32_to_f16(scales[lane]);
    bits[lane] = half;
    scales[lane] = f16_to_f32(half);
    finite &= std::isfinite(scales[lane]) != 0;
  }
  return finite;
}

template <int n, class Book>
bool fit_groups(const Book& book, const ScaleSteps& grid, std::span<const float> x, std::span<const float> w,
                const CodedRow& out) {
  bool sound = true;
  for (size_t at = 0; at < x.size(); at += kLanes * n) {
    const GroupLanes<n> g(&x[at], &w[at]);
    Lanes scale = search_scale(g, book, grid, kLeastHalf);
    sound &= round_to_half(scale, &out.scales[at / n]);
    put_codes(g, book, inverse_or_zero(scale), &out.codes[at]);
  }
  return sound;
}

}  // namespace

bool fit_flat(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
              const CodedRow& out) {
  const PanelFormat& f = type.format;
  if (f.codes == Codes::kTable4) return fit_groups<32>(table_book(f), kManyCodes, weights, importance, out);
  const ScaleSteps& grid = f.codes == Codes::kU5 ? kMostCodes : f.codes == Codes::kU4 ? kManyCodes : kFewCodes;
  if (f.group == 64) return fit_groups<64>(integer_book(f), grid, weights, importance, out);
  assert(f.group == 32);
  return fit_groups<32>(integer_book(f), grid, weights, importance, out);
}

// As ggml's reference, to the bit: codes of 8 bits leave so little error that every program's files may as well agree.
bool fit_q8_0(const BlockType&, std::span<const float> weights, std::span<const float>, const CodedRow& out) {
  bool sound = true;
  for (size_t at = 0; at < weights.size(); at += 32) {
    const std::span<const float> x = weights.subspan(at, 32);
    float most = 0;
    for (const float v : x) most = std::max(most, std::fabs(v));
    const float scale = most / 127.0f;
    float inverse = scale != 0 ? 1.0f / scale : 0.0f;
    if (!std::isfinite(inverse)) inverse = 0;  // of subnormal weights, whose scale is 0 in float16
    const uint16_t half = f32_to_f16(scale);
    out.scales[at / 32] = half;
    if (!std::isfinite(f16_to_f32(half))) return false;
    for (size_t i = 0; i < 32; ++i)
      out.codes[at + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(x[i] * inverse)));
  }
  return sound;
}

bool fit_flat_affine(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
                     const CodedRow& out) {
  constexpr int n = 32;
  const IntegerBook book = integer_book(type.format);
  const RangeSteps& grid = type.format.codes == Codes::kU5 ? kMostAffineCodes : kManyAffineCodes;
  bool sound = true;
  for (size_t at = 0; at < weights.size(); at += kLanes * n) {
    // Around the middle of each group, so that a large minimum does not drown the differences in rounding.
    std::array<float, kLanes * n> centred;
    Lanes centre;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const auto group = weights.subspan(at + lane * n, n);
      const auto [low, high] = std::ranges::minmax(group);
      centre[lane] = low + (high - low) / 2;
      for (size_t i = 0; i < n; ++i) centred[lane * n + i] = group[i] - centre[lane];
    }
    const GroupLanes<n> g(centred.data(), &importance[at]);
    AffineFit fit = search_affine(g, book.most, false, grid, kLeastHalf);
    sound &= round_to_half(fit.scale, &out.scales[at / n]);
    const AffineSums sums = weight_sums(g);  // without a scale, the mean loses least
    fit.minimum = centre + choose(fit.scale == in_all_lanes(0), sums.x / sums.w, fit.minimum);
    sound &= round_to_half(fit.minimum, &out.minima[at / n]);
    const Lanes inverse = inverse_or_zero(fit.scale), from = centre - fit.minimum;
    for (int i = 0; i < n; ++i) {
      const Lanes q = book.nearest((g.x[i] + from) * inverse);
      for (int lane = 0; lane < kLanes; ++lane) out.codes[at + static_cast<size_t>(lane * n + i)] = book.code(q[lane]);
    }
  }
  return sound;
}

namespace {

// The scale of four groups among `count` that scale_of(lane, i) gives, by what they gain.
template <int n, class ScaleOf>
Lanes best_of(const GroupLanes<n>& g, const TableBook& book, int count, std::array<int, kLanes>& chosen,
              const ScaleOf& scale_of) {
  Lanes best_scale{}, best_gain = in_all_lanes(-1);
  for (int i = 0; i < count; ++i) {
    Lanes scale;
    for (int lane = 0; lane < kLanes; ++lane) scale[lane] = scale_of(lane, i);
    const Lanes gain = sums_under(g, book, inverse_or_zero(scale)).gain(scale);
    for (int lane = 0; lane < kLanes; ++lane) {
      if (gain[lane] <= best_gain[lane]) continue;
      best_gain[lane] = gain[lane], best_scale[lane] = scale[lane];
      chosen[static_cast<size_t>(lane)] = i;
    }
  }
  return best_scale;
}

// Bytes that are powers of two: the one under which the greatest weight is at most 8, in units of the scale, whose
// greatest number is 6, and its neighbours.
bool fit_mxfp4(const TableBook& book, std::span<const float> x, std::span<const float> w, const CodedRow& out) {
  constexpr int n = 32, kFirst = 2, kLast = 254;  // below 2, scales are subnormal and have no inverse
  for (size_t at = 0; at < x.size(); at += kLanes * n) {
    const GroupLanes<n> g(&x[at], &w[at]);
    const Lanes most = magnitude(extreme_of(g));
    std::array<int, kLanes> least, chosen{};
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const int exponent = most[lane] > 0 ? std::ilogb(most[lane]) - 2 : -126;
      least[lane] = std::clamp(127 + exponent - 1, kFirst, kLast - 2);
    }
    const Lanes scale = best_of(g, book, 3, chosen, [&](int lane, int i) {
      return half_e8m0_to_f32(static_cast<uint8_t>(least[static_cast<size_t>(lane)] + i));
    });
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const bool is_zero = most[lane] == 0;
      out.scales[at / n + lane] = is_zero ? 0 : static_cast<uint32_t>(least[lane] + chosen[lane]);
    }
    put_codes(g, book, inverse_or_zero(scale), &out.codes[at]);
  }
  return true;
}

// Bytes of E4M3: those that put the greatest weight between 12 / 1.6 and 12 / 0.7 times the scale's half.
bool fit_nvfp4(const TableBook& book, float factor, std::span<const float> x, std::span<const float> w,
               const CodedRow& out) {
  constexpr int n = 16, kCandidates = 12, kLast = 0x7e;
  bool sound = true;
  for (size_t at = 0; at < x.size(); at += kLanes * n) {
    const GroupLanes<n> g(&x[at], &w[at]);
    const Lanes most = magnitude(extreme_of(g));
    std::array<int, kLanes> least, chosen{};
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float wanted = most[lane] / (factor * book.most) * 0.7f;
      sound &= wanted <= e4m3_to_f32(kLast);
      int code = 0;
      while (code < kLast && e4m3_to_f32(static_cast<uint8_t>(code + 1)) <= wanted) ++code;
      least[lane] = code;
    }
    const Lanes scale = best_of(g, book, kCandidates, chosen, [&](int lane, int i) {
      const int code = std::min(least[static_cast<size_t>(lane)] + i, kLast);
      return e4m3_to_f32(static_cast<uint8_t>(code)) * factor;
    });
    for (size_t lane = 0; lane < kLanes; ++lane)
      out.scales[at / n + lane] = static_cast<uint32_t>(std::min(least[lane] + chosen[lane], kLast));
    put_codes(g, book, inverse_or_zero(scale), &out.codes[at]);
  }
  return sound;
}

}  // namespace

bool fit_float4(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
                const CodedRow& out) {
  const TableBook& book = table_book(type.format);
  if (type.format.scale == ScaleKind::kE8M0) return fit_mxfp4(book, weights, importance, out);
  return fit_nvfp4(book, type.factor, weights, importance, out);
}

// The best scale of +1 and -1 is the mean of the magnitudes.
bool fit_signs(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
               const CodedRow& out) {
  const auto n = static_cast<size_t>(type.format.group);
  bool sound = true;
  for (size_t at = 0; at < weights.size(); at += n) {
    double sum = 0, count = 0;
    for (size_t i = at; i < at + n; ++i) {
      sum += double{importance[i]} * std::fabs(weights[i]);
      count += importance[i];
      out.codes[i] = weights[i] >= 0 ? 2 : 0;
    }
    const uint16_t half = f32_to_f16(static_cast<float>(sum / count));
    sound &= std::isfinite(f16_to_f32(half)) != 0;
    out.scales[at / n] = half;
  }
  return sound;
}

// Of -1, 0 and 1 the best codes under a scale d are those of |x| > d / 2, so they are the greatest magnitudes, however
// many: all are tried.
bool fit_ternary(const BlockType&, std::span<const float> weights, std::span<const float> importance,
                 const CodedRow& out) {
  std::array<std::pair<float, float>, kSuperInputs> sorted;  // magnitude and importance
  for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = {std::fabs(weights[i]), importance[i]};
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.first > b.first; });
  double sum = 0, count = 0, best = 0, scale = 0;
  for (const auto& [x, w] : sorted) {
    sum += double{w} * x;
    count += w;
    if (sum * sum > best * count) best = sum * sum / count, scale = sum / count;
  }
  const uint16_t half = f32_to_f16(static_cast<float>(scale));
  const float rounded = f16_to_f32(half);
  out.scales[0] = half;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const bool counts = std::fabs(weights[i]) > rounded / 2;
    out.codes[i] = !counts ? 1 : weights[i] > 0 ? 2 : 0;
  }
  return std::isfinite(rounded) != 0;
}

}  // namespace quire
