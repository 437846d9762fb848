#include "quantize/solve/float4.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <span>

#include "base/float8.h"
#include "quantize/solve/float_codes.h"

namespace quire {
namespace {

constexpr int kBiasE8M0 = 127, kLargestCodeE4M3 = 0x7e;
// Codes of E4M3 below and above the one that covers a group: from 0.6 to 1.5 times it.
constexpr int kNvfp4Below = 7, kNvfp4Above = 5;

float power_of_two(int exponent) { return std::ldexp(1.0f, exponent); }

float largest_of(std::span<const float> weights) {
  float largest = 0;
  for (const float w : weights) largest = std::max(largest, std::fabs(w));
  return largest;
}

double loss_under(std::span<const float> weights, std::span<const float> importance, float scale) {
  double loss = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const float error = weights[i] - scale * e2m1_number(e2m1_code(weights[i] / scale));
    loss += static_cast<double>((importance.empty() ? 1 : importance[i]) * error * error);
  }
  return loss;
}

// Fills codes and scales; range: the codes of scales that are worth trying for a group's largest magnitude, from the first
// to the last.
template <class F>
void round_groups(const FloatMatrix& weights, std::span<const float> importance, Team& team, F range,
                  Float4Matrix& to) {
  const auto group = static_cast<size_t>(to.group()), groups = static_cast<size_t>(to.cols) / group;
  to.codes.resize(weights.values.size());
  to.scales.resize(static_cast<size_t>(to.rows) * groups);
  team.for_tiles(to.rows, [&](int row, int) {
    for (size_t g = 0; g < groups; ++g) {
      const std::span<const float> from = weights.row(row).subspan(g * group, group),
                                   counts = importance.empty() ? importance : importance.subspan(g * group, group);
      uint8_t& scale = to.scales[static_cast<size_t>(row) * groups + g];
      const auto [first, last] = range(largest_of(from));
      double least = std::numeric_limits<double>::infinity();
      uint8_t best = static_cast<uint8_t>(first);
      for (int code = first; code <= last; ++code) {
        scale = static_cast<uint8_t>(code);
        const double loss = loss_under(from, counts, to.scale_of(row, static_cast<int>(g)));
        if (loss < least) least = loss, best = scale;
      }
      scale = best;
      const float chosen = to.scale_of(row, static_cast<int>(g));
      uint8_t* const codes = to.codes.data() + static_cast<size_t>(row) * static_cast<size_t>(to.cols) + g * group;
      for (size_t i = 0; i < group; ++i) codes[i] = e2m1_code(from[i] / chosen);
    }
  });
}

struct CodeRange {
  int first, last;
};

}  // namespace

float Float4Matrix::scale_of(int row, int g) const {
  const uint8_t code = scales[static_cast<size_t>(row) * static_cast<size_t>(cols / group()) + static_cast<size_t>(g)];
  return kind == Kind::kMxfp4 ? power_of_two(code - kBiasE8M0) : e4m3_to_f32(code) / divisor;
}

FloatMatrix Float4Matrix::dequantized() const {
  FloatMatrix all(rows, cols);
  for (int r = 0; r < rows; ++r) {
    const std::span<float> row = all.row(r);
    for (int c = 0; c < cols; ++c)
      row[static_cast<size_t>(c)] =
          scale_of(r, c / group()) *
          e2m1_number(codes[static_cast<size_t>(r) * static_cast<size_t>(cols) + static_cast<size_t>(c)]);
  }
  return all;
}

Float4Matrix round_to_mxfp4(const FloatMatrix& weights, std::span<const float> importance, Team& team) {
  Float4Matrix to{.kind = Float4Matrix::Kind::kMxfp4, .rows = weights.rows, .cols = weights.cols};
  assert(weights.cols % to.group() == 0);
  // OCP's exponent, floor(log2(largest)) - 2, may cut the largest weight by a quarter; the next one never cuts.
  round_groups(
      weights, importance, team,
      [](float largest) {
        const int exponent = largest > 0 ? std::ilogb(largest) - 2 + kBiasE8M0 : 0;
        return CodeRange{std::clamp(exponent, 0, 254), std::clamp(exponent + 1, 0, 254)};
      },
      to);
  return to;
}

Float4Matrix round_to_nvfp4(const FloatMatrix& weights, std::span<const float> importance, float largest, Team& team) {
  Float4Matrix to{.kind = Float4Matrix::Kind::kNvfp4, .rows = weights.rows, .cols = weights.cols};
  assert(weights.cols % to.group() == 0);
  // The divisor uses E4M3's range up to its upper half: with a power of two, between 224 and 448 of it.
  const int exponent = largest > 0 ? std::ilogb(kLargestE4M3Number * kLargestE2M1Number / largest) : 0;
  to.divisor = power_of_two(std::clamp(exponent, -100, 100));
  round_groups(
      weights, importance, team,
      [&](float most) {
        const int code = e4m3_code(most / kLargestE2M1Number * to.divisor);
        // Scale 0 makes all weights 0, and is right only for these.
        return most == 0 ? CodeRange{1, 1}
                         : CodeRange{std::clamp(code - kNvfp4Below, 1, kLargestCodeE4M3),
                                     std::clamp(code + kNvfp4Above, 1, kLargestCodeE4M3)};
      },
      to);
  return to;
}

}  // namespace quire
