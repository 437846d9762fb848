#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "model/sin_cos.h"

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

RopeTable make_rope_table(const RopeConfig& c) {
  RopeTable table;
  double low = 0, high = 0;
  if (c.scaling == RopeConfig::Scaling::kYarn) {
    low = std::max(std::floor(pair_of_turns(c, c.beta_fast)), 0.0);
    high = std::min(std::ceil(pair_of_turns(c, c.beta_slow)), c.dim - 1.0);
    if (low == high) high += 0.001;
    table.amplitude = static_cast<float>(c.attention_factor.value_or(c.factor > 1 ? 0.1 * std::log(c.factor) + 1 : 1));
  }
  for (int i = 0; i < c.dim / 2; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(c.dim);
    const auto period = static_cast<float>(std::pow(c.theta, static_cast<double>(exponent)));
    float frequency = 1.0f / period;
    switch (c.scaling) {
      case RopeConfig::Scaling::kNone:
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
    }
    if (!c.frequency_divisors.empty()) frequency /= c.frequency_divisors[static_cast<size_t>(i)];
    table.frequencies.push_back(frequency);
  }
  return table;
}

void RopeTable::at(int position, float* cos_sin) const {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto [sin, cos] = sin_cos(static_cast<float>(position) * frequencies[i]);
    cos_sin[2 * i] = static_cast<float>(cos) * amplitude;
    cos_sin[2 * i + 1] = static_cast<float>(sin) * amplitude;
  }
}

CacheLayout cache_layout(const ModelConfig& c, KvType type) {
  std::vector<LayerCache> layers;
  for (const int window : c.windows) {
    layers.push_back({.kind = LayerCache::Kind::kKeysValues,
                      .kv_heads = c.kv_heads,
                      .key_dim = c.head_dim,
                      .value_dim = c.head_dim,
                      .window = window});
  }
  return {type, std::move(layers)};
}

void validate(const ModelConfig& c, const std::string& file) {
  const auto check = [&](const char* what, int64_t value, int64_t lowest, int64_t highest) {
    if (value < lowest || value > highest)
      throw invalid("{}: {} is {}; it must be {} to {}", file, what, value, lowest, highest);
  };
  check("the number of layers", c.layers, 1, 1024);
  check("the hidden size", c.hidden, 1, 1 << 17);
  check("the number of attention heads", c.heads, 1, 1024);
  check("the number of KV heads", c.kv_heads, 1, c.heads);
  check("the head size", c.head_dim, 2, kMaxHeadDim);
  check("the feed-forward size", c.ffn, 1, 1 << 20);
  check("the vocabulary size", c.vocab, 1, 1 << 20);
  check("the context length", c.max_positions, 1, 1 << 27);
  check("the rotary size", c.rope.dim, 0, c.head_dim);
  if (c.heads % c.kv_heads != 0)
    throw invalid("{}: {} attention heads are not a multiple of {} KV heads", file, c.heads, c.kv_heads);
  if (c.rope.dim % 2 != 0 || c.head_dim % 2 != 0)
    throw invalid("{}: head size {} and rotary size {} must be even", file, c.head_dim, c.rope.dim);
  if (!(c.norm_epsilon >= 0 && c.norm_epsilon < 1))
    throw invalid("{}: the norm's epsilon is {}; it must be at least 0 and below 1", file, c.norm_epsilon);
  if (!(c.attention_scale > 0 && std::isfinite(c.attention_scale)))
    throw invalid("{}: the attention scale is {}; it must be positive", file, c.attention_scale);
  const RopeConfig& r = c.rope;
  if (!(r.theta > 1 && std::isfinite(r.theta)))
    throw invalid("{}: rope theta is {}; it must be above 1", file, r.theta);
  if (!(r.factor > 0 && std::isfinite(r.factor)))
    throw invalid("{}: the rope scaling factor is {}; it must be positive", file, r.factor);
  const bool stretched = r.scaling == RopeConfig::Scaling::kLlama3 || r.scaling == RopeConfig::Scaling::kYarn;
  if (stretched && !(r.original_positions > 0))
    throw invalid("{}: this rope scaling needs the original context length", file);
  if (stretched && !(r.low_frequency_factor > 0 && r.high_frequency_factor > r.low_frequency_factor &&
                     r.beta_fast > 0 && r.beta_slow > 0)) {
    throw invalid("{}: the factors of rope scaling are out of range or out of order", file);
  }
  if (!r.frequency_divisors.empty() && r.frequency_divisors.size() != static_cast<size_t>(r.dim / 2)) {
    throw invalid("{}: {} rope frequency factors, expected {}", file, r.frequency_divisors.size(), r.dim / 2);
  }
  for (const float divisor : r.frequency_divisors) {
    if (!(divisor > 0 && std::isfinite(divisor)))
      throw invalid("{}: a rope frequency factor is {}; it must be positive", file, divisor);
  }
}

}  // namespace quire
