#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quire {
namespace {

// The (fractional) index of the pair that makes `turns` turns in the original length (YaRN's find_correction_dim).
double pair_of_turns(const RopeConfig& c, double turns) {
  return c.dim * std::log(c.original_positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(c.theta));
}

float llama3_frequency(const RopeConfig& c, float frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double longest = c.original_positions / c.low_frequency_factor,
               shortest = c.original_positions / c.high_frequency_factor;
  if (wavelength < shortest) return frequency;
  if (wavelength > longest) return static_cast<float>(frequency / c.factor);
  const double smooth =
      (c.original_positions / wavelength - c.low_frequency_factor) / (c.high_frequency_factor - c.low_frequency_factor);
  return static_cast<float>((1 - smooth) * frequency / c.factor + smooth * frequency);
}

}  // namespace

int rope_variant(std::span<const RopeConfig> ropes, int prompt_tokens) {
  for (const RopeConfig& rope : ropes) {
    if (prompt_tokens <= rope.original_positions) continue;
    if (rope.scaling == RopeConfig::Scaling::kLongRope) return 1;
    if (rope.scaling == RopeConfig::Scaling::kDynamic) return prompt_tokens;
  }
  return 0;
}

RopeTable make_rope_table(const RopeConfig& c, int variant) {
  RopeTable table;
  double low = 0, high = 0, theta = c.theta;
  const bool is_long = variant > 0;
  switch (c.scaling) {
    case RopeConfig::Scaling::kYarn:
      low = pair_of_turns(c, c.beta_fast);
      high = pair_of_turns(c, c.beta_slow);
      if (c.truncate) low = std::floor(low), high = std::ceil(high);
      low = std::max(low, 0.0);
      high = std::min(high, c.dim - 1.0);
      if (low == high) high += 0.001;
      table.amplitude =
          static_cast<float>(c.attention_factor.value_or(c.factor > 1 ? 0.1 * std::log(c.factor) + 1 : 1));
      break;
    case RopeConfig::Scaling::kLongRope:
      table.amplitude = static_cast<float>(c.attention_factor.value_or(
          c.factor > 1 ? std::sqrt(1 + std::log(c.factor) / std::log(c.original_positions)) : 1));
      break;
    case RopeConfig::Scaling::kDynamic:
      if (is_long) {
        const double stretch = c.factor * variant / c.original_positions - (c.factor - 1);
        theta *= std::pow(stretch, c.dim / (c.dim - 2.0));
      }
      break;
    default:
      break;
  }
  for (int i = 0; i < c.dim / 2; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(c.dim);
    const auto period = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    float frequency = 1.0f / period;
    switch (c.scaling) {
      case RopeConfig::Scaling::kNone:
      case RopeConfig::Scaling::kDynamic:
        break;
      case RopeConfig::Scaling::kLinear:
        frequency = static_cast<float>(frequency / c.factor);
        break;
      case RopeConfig::Scaling::kLlama3:
        frequency = llama3_frequency(c, frequency);
        break;
      case RopeConfig::Scaling::kYarn: {
        const double interpolated = std::clamp((i - low) / (high - low), 0.0, 1.0);  // 1: fully stretched
        frequency = static_cast<float>(1 / (c.factor * period) * interpolated + 1.0 / period * (1 - interpolated));
        break;
      }
      case RopeConfig::Scaling::kLongRope:
        frequency = static_cast<float>(
            1 / ((is_long ? c.long_factors : c.short_factors)[static_cast<size_t>(i)] * static_cast<double>(period)));
        break;
      case RopeConfig::Scaling::kProportional:
        frequency = 2 * i < c.rotated ? static_cast<float>(frequency / c.factor) : 0;
        break;
    }
    if (!c.frequency_divisors.empty()) frequency /= c.frequency_divisors[static_cast<size_t>(i)];
    table.frequencies.push_back(frequency);
  }
  return table;
}

}  // namespace quire
