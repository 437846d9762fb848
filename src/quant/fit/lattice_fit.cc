// Groups of vectors from a lattice (IQ1, IQ2, IQ3), under odd integer scales that share a float16.
//
// As for K types (super_fit.cc): the groups are searched alone, over a grid of scales and in turns with least squares;
// then the float16 and the integers around. What is rounded here is a vector: of the lattice's points near it, the one
// whose weighted error is least, signs included.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/half.h"
#include "quant/block_type.h"
#include "quant/fit/fit.h"
#include "quant/fit/lattice.h"
#include "quant/iq_grids.h"

namespace quire {
namespace {

constexpr uint8_t kMinusCode = 8;  // in a code: the second half of the format's table
constexpr size_t kVector = 8;      // weights that share a set of signs

// Eight weights: magnitudes and signs, and what errors count.
struct Eight {
  alignas(16) std::array<float, kVector> x, w;
};

// Eight rounded weights in units of the scale.
struct RoundedEight {
  std::array<uint8_t, kVector> codes{};
  float xq = 0, qq = 0;  // sum(w x q), sum(w q^2)
};

template <size_t dims>
float dot(const float* a, const float* b) {
  Lanes sum{};
  for (size_t i = 0; i < dims; i += 4) {
    const Lanes x{a[i], a[i + 1], a[i + 2], a[i + 3]}, y{b[i], b[i + 1], b[i + 2], b[i + 3]};
    sum += x * y;
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// The point of a lattice that suits a vector best.
struct Choice {
  size_t point = 0;
  int flipped = -1;  // the element whose sign is the other one; -1: none
  float loss = INFINITY;
};

// y: in units of the scale; not negative if `flips`. With `flips` one sign must differ from the vector's.
template <class L>
Choice round_vector(const L& lattice, const std::array<float, L::kDims>& y, const float* w, bool flips) {
  constexpr size_t n = L::kDims;
  alignas(16) std::array<float, n> wy;
  for (size_t i = 0; i < n; ++i) wy[i] = -2 * w[i] * y[i];
  Choice best;
  for (const uint16_t p : lattice.near_to(y)) {
    const auto& g = lattice.point(p).values;
    alignas(16) std::array<float, n> term;
    for (size_t i = 0; i < n; ++i) term[i] = w[i] * g[i] + wy[i];
    float loss = dot<n>(term.data(), g.data());
    int flipped = -1;
    if (flips) {
      float least = INFINITY;
      for (size_t i = 0; i < n; ++i) {
        const float cost = -2 * wy[i] * g[i];  // (y + g)^2 - (y - g)^2 = 4 y g
        if (cost < least) least = cost, flipped = static_cast<int>(i);
      }
      loss += least;
    }
    if (loss < best.loss) best = {p, flipped, loss};
  }
  return best;
}

template <class L>
void put_vector(const L& lattice, const Choice& choice, const Eight& v, size_t at, RoundedEight& out) {
  const auto& point = lattice.point(choice.point);
  for (size_t i = 0; i < L::kDims; ++i) {
    const bool minus = std::signbit(v.x[at + i]) != (choice.flipped == static_cast<int>(i));
    const float q = minus ? -point.values[i] : point.values[i];
    out.codes[at + i] = static_cast<uint8_t>(point.codes[i] | (minus ? kMinusCode : 0));
    out.xq += v.w[at + i] * v.x[at + i] * q;
    out.qq += v.w[at + i] * q * q;
  }
}

// Magnitudes from the lattice, with signs: seven of eight are free if `even`, which makes the number of minuses even.
template <class L, bool even>
RoundedEight round_signed(const L& lattice, const Eight& v, float inverse) {
  constexpr size_t n = L::kDims, kParts = kVector / n;
  std::array<Choice, kParts> plain, flipped;
  bool odd = false;
  for (size_t i = 0; i < kVector; ++i) odd ^= std::signbit(v.x[i]);
  const bool flips = even && odd;
  for (size_t part = 0; part < kParts; ++part) {
    std::array<float, n> y;
    for (size_t i = 0; i < n; ++i) y[i] = std::fabs(v.x[part * n + i]) * inverse;
    const float* w = &v.w[part * n];
    if (!flips || kParts > 1) plain[part] = round_vector(lattice, y, w, false);
    if (flips) flipped[part] = round_vector(lattice, y, w, true);
  }
  size_t to_flip = 0;  // the part in which a sign costs least
  if constexpr (kParts > 1) {
    if (flips && flipped[1].loss - plain[1].loss < flipped[0].loss - plain[0].loss) to_flip = 1;
  }
  RoundedEight out;
  for (size_t part = 0; part < kParts; ++part)
    put_vector(lattice, flips && part == to_flip ? flipped[part] : plain[part], v, part * n, out);
  return out;
}

// -1, 0 and 1, an eighth more or less: units are eighths.
template <class L>
RoundedEight round_shifted(const L& lattice, const Eight& v, float inverse, bool minus, float& loss) {
  std::array<float, kVector> y;
  const float shift = minus ? -1 : 1;
  float constant = 0;
  for (size_t i = 0; i < kVector; ++i) {
    y[i] = v.x[i] * inverse - shift;
    constant += v.w[i] * y[i] * y[i];
  }
  const Choice choice = round_vector(lattice, y, v.w.data(), false);
  loss = choice.loss + constant;
  RoundedEight out;
  const auto& point = lattice.point(choice.point);
  for (size_t i = 0; i < kVector; ++i) {
    const float q = point.values[i] + shift;
    out.codes[i] = static_cast<uint8_t>(point.codes[i] | (minus ? kMinusCode : 0));
    out.xq += v.w[i] * v.x[i] * q;
    out.qq += v.w[i] * q * q;
  }
  return out;
}

// A group of up to 32 weights under one scale.
struct RoundedGroup {
  std::array<uint8_t, 32> codes{};
  float xq = 0, qq = 0;

  float gain(float scale) const { return scale * (2 * xq - scale * qq); }
  void add(const RoundedEight& eight, size_t at) {
    std::ranges::copy(eight.codes, codes.begin() + static_cast<ptrdiff_t>(at));
    xq += eight.xq, qq += eight.qq;
  }
};

template <class L, bool even>
struct SignedRounding {
  const L& lattice;
  float most;  // the greatest number

  RoundedGroup operator()(std::span<const Eight> group, float scale) const {
    RoundedGroup out;
    const float inverse = scale > 0 ? 1 / scale : 0;
    for (size_t i = 0; i < group.size(); ++i) out.add(round_signed<L, even>(lattice, group[i], inverse), i * kVector);
    return out;
  }
};

// together: the group shares the sign of the eighth; else each vector has its own.
template <class L, bool together>
struct ShiftedRounding {
  const L& lattice;
  float most;

  RoundedGroup operator()(std::span<const Eight> group, float scale) const {
    const float inverse = scale > 0 ? 1 / scale : 0;
    RoundedGroup plus, minus, each;
    float plus_loss = 0, minus_loss = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      float a = 0, b = 0;
      const RoundedEight up = round_shifted(lattice, group[i], inverse, false, a),
                         down = round_shifted(lattice, group[i], inverse, true, b);
      plus.add(up, i * kVector), minus.add(down, i * kVector);
      each.add(a <= b ? up : down, i * kVector);
      plus_loss += a, minus_loss += b;
    }
    if (!together) return each;
    return plus_loss <= minus_loss ? plus : minus;
  }
};

// Multiples of the scale under which the greatest weight is the greatest number.
constexpr float kSteps[] = {0.62f, 0.72f, 0.80f, 0.88f, 0.96f, 1.04f, 1.14f, 1.26f, 1.40f};
constexpr int kGroupTurns = 2, kSharedTurns = 2;

template <class Rounding>
float search_group(const Rounding& round, std::span<const Eight> group, RoundedGroup& best) {
  float most = 0;
  for (const Eight& v : group) {
    for (const float x : v.x) most = std::max(most, std::fabs(x));
  }
  float best_scale = 0, best_gain = 0;
  if (most < 0x1p-60f) return 0;
  const auto try_scale = [&](float at) {
    const RoundedGroup rounded = round(group, at);
    if (!(rounded.xq > 0) || !(rounded.qq > 0)) return;
    const float scale = rounded.xq / rounded.qq, gain = scale * rounded.xq;
    if (gain > best_gain) best_gain = gain, best_scale = scale, best = rounded;
  };
  for (const float step : kSteps) try_scale(most / (step * round.most));
  for (int turn = 0; turn < kGroupTurns && best_scale > 0; ++turn) try_scale(best_scale);
  return best_scale;
}

// The nearest of 1, 3 .. most.
float nearest_odd(float x, float most) { return std::clamp(2 * std::floor(x / 2) + 1, 1.0f, most); }

// The number under which odd integers come closest to the groups' scales.
float search_shared_odd(std::span<const float> scales, std::span<const float> counts, float most_odd) {
  const float most = *std::ranges::max_element(scales);
  float best = most / most_odd, least = INFINITY;
  for (int i = -12; i <= 16; ++i) {
    const float d = most / (most_odd + static_cast<float>(i) * most_odd * 0.025f);
    float sk = 0, kk = 0, ss = 0;
    for (size_t g = 0; g < scales.size(); ++g) {
      const float k = nearest_odd(scales[g] / d, most_odd);
      sk += counts[g] * scales[g] * k, kk += counts[g] * k * k, ss += counts[g] * scales[g] * scales[g];
    }
    if (!(kk > 0)) continue;
    const float loss = ss - sk * sk / kk;
    if (loss < least) least = loss, best = sk / kk;
  }
  return best;
}

// factor: of the format. most_odd: the greatest integer.
template <size_t group_size, class Rounding>
bool fit_lattice_groups(const Rounding& round, float factor, float most_odd, std::span<const float> x,
                        std::span<const float> w, const CodedRow& out) {
  constexpr size_t kGroups = kSuperInputs / group_size, kOfGroup = group_size / kVector;
  std::array<Eight, kSuperInputs / kVector> all;
  for (size_t i = 0; i < x.size(); ++i) all[i / kVector].x[i % kVector] = x[i], all[i / kVector].w[i % kVector] = w[i];
  const auto group = [&](size_t g) { return std::span<const Eight>(all).subspan(g * kOfGroup, kOfGroup); };
  std::array<float, kGroups> scales, counts, integers, best_integers;
  std::array<RoundedGroup, kGroups> rounded, best_rounded;
  for (size_t g = 0; g < kGroups; ++g) {
    scales[g] = search_group(round, group(g), rounded[g]);
    counts[g] = rounded[g].qq;
  }
  float shared = search_shared_odd(scales, counts, most_odd), best_gain = 0;
  uint16_t half = 0;
  best_integers.fill(1);
  best_rounded = rounded;
  for (int turn = 0; turn < kSharedTurns; ++turn) {
    const uint16_t now = f32_to_f16(shared / factor);
    const float d = f16_to_f32(now) * factor;
    if (!std::isfinite(d)) return false;
    if (!(d > 0)) break;
    float gain = 0, xk = 0, kk = 0;
    for (size_t g = 0; g < kGroups; ++g) {
      const float middle = turn == 0 ? nearest_odd(scales[g] / d, most_odd) : integers[g];
      float most_gain = -INFINITY;
      for (const float step : {0.0f, -2.0f, 2.0f}) {
        const float k = middle + step;
        if (k < 1 || k > most_odd) continue;
        const RoundedGroup candidate = round(group(g), k * d);
        const float its = candidate.gain(k * d);
        if (its > most_gain) most_gain = its, integers[g] = k, rounded[g] = candidate;
      }
      gain += most_gain;
      xk += integers[g] * rounded[g].xq, kk += integers[g] * integers[g] * rounded[g].qq;
    }
    if (turn == 0 || gain > best_gain) best_gain = gain, half = now, best_integers = integers, best_rounded = rounded;
    if (!(xk > 0)) break;
    shared = xk / kk;
  }
  out.supers[0] = half;
  for (size_t g = 0; g < kGroups; ++g) {
    out.scales[g] = static_cast<uint32_t>(best_integers[g]);
    std::copy_n(best_rounded[g].codes.begin(), group_size, out.codes.begin() + static_cast<ptrdiff_t>(g * group_size));
  }
  return true;
}

// Three times as many points lose at most 0.5 % less of normal weights, and 3 % with importance that varies widely.
constexpr size_t kNearEight = 20, kNearFour = 12;

constexpr std::array<float, 3> kTwoBits = {8, 25, 43}, kTernary = {-8, 0, 8};
constexpr std::array<float, 8> kThreeBits = {4, 12, 20, 28, 36, 44, 52, 62}, kOdds = {1, 3, 5, 7, 9, 11, 13, 15};

using LatticeOfTwoBits = Lattice<8, 3, kNearEight>;
using LatticeOfThreeBits = Lattice<4, 8, kNearFour>;

}  // namespace

// The lattices are made when they are first used: a tenth of a second at most.
bool fit_lattice(const BlockType& type, std::span<const float> x, std::span<const float> w, const CodedRow& out) {
  constexpr float kFourBits = 31, kThree = 15;  // the greatest odd integers
  switch (type.type) {
    case TensorType::IQ2_XXS: {
      static const LatticeOfTwoBits lattice(kIq2XxsGrid, kTwoBits);
      return fit_lattice_groups<32>(SignedRounding<LatticeOfTwoBits, true>{lattice, 43}, type.factor, kFourBits, x, w,
                                    out);
    }
    case TensorType::IQ2_XS: {
      static const LatticeOfTwoBits lattice(kIq2XsGrid, kTwoBits);
      return fit_lattice_groups<16>(SignedRounding<LatticeOfTwoBits, true>{lattice, 43}, type.factor, kFourBits, x, w,
                                    out);
    }
    case TensorType::IQ2_S: {
      static const LatticeOfTwoBits lattice(kIq2SGrid, kTwoBits);
      return fit_lattice_groups<16>(SignedRounding<LatticeOfTwoBits, false>{lattice, 43}, type.factor, kFourBits, x, w,
                                    out);
    }
    case TensorType::IQ3_XXS: {
      static const LatticeOfThreeBits lattice(kIq3XxsGrid, kThreeBits);
      return fit_lattice_groups<32>(SignedRounding<LatticeOfThreeBits, true>{lattice, 62}, type.factor, kFourBits, x, w,
                                    out);
    }
    case TensorType::IQ3_S: {
      static const LatticeOfThreeBits lattice(kIq3SGrid, kOdds);
      return fit_lattice_groups<32>(SignedRounding<LatticeOfThreeBits, false>{lattice, 15}, type.factor, kFourBits, x,
                                    w, out);
    }
    default: {
      static const LatticeOfTwoBits lattice(kIq1Grid, kTernary);
      if (type.type == TensorType::IQ1_S)
        return fit_lattice_groups<32>(ShiftedRounding<LatticeOfTwoBits, true>{lattice, 9}, type.factor, kThree, x, w,
                                      out);
      return fit_lattice_groups<16>(ShiftedRounding<LatticeOfTwoBits, false>{lattice, 9}, type.factor, kThree, x, w,
                                    out);
    }
  }
}

}  // namespace quire
