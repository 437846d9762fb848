#include "sampling/softmax.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "sampling/lanes.h"

namespace quire {
namespace {

// Reductions keep this many partial results; element i belongs to partial i mod kLanes. So the order of operations does
// not depend on the machine.
constexpr size_t kLanes = 16;

inline Floats exp4(Floats x) { return exp_up_to_0<Floats, Bits>(x); }

// A sum in fixed order: each lane, then the remaining elements, then the lanes.
double sum_lanes(std::span<const float> x) {
  std::array<double, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(x[i + lane]);
  }
  double sum = 0;
  for (; i < x.size(); ++i) sum += static_cast<double>(x[i]);
  for (const double s : lanes) sum += s;
  return sum;
}

}  // namespace

Peak find_peak(std::span<const float> logits) {
  assert(!logits.empty());
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  Peak peak{kNone, 0};
  uint32_t broken = 0;
  size_t from = 0;  // beginning of the block that contains the peak
  size_t i = 0;
  for (; i + kWeightBlock <= logits.size(); i += kWeightBlock) {
    std::array<float, kLanes> most;
    std::array<uint32_t, kLanes> bad{};
    most.fill(kNone);
    for (size_t j = 0; j < kWeightBlock; j += kLanes) {
      const float* x = &logits[i + j];
      for (size_t lane = 0; lane < kLanes; ++lane) {
        most[lane] = most[lane] > x[lane] ? most[lane] : x[lane];
        bad[lane] |= x[lane] <= std::numeric_limits<float>::max() ? 0u : 1u;  // false for NaN
      }
    }
    const float block_most = *std::max_element(most.begin(), most.end());
    for (const uint32_t b : bad) broken |= b;
    if (block_most > peak.logit) {
      peak.logit = block_most;
      from = i;
    }
  }
  for (; i < logits.size(); ++i) {
    broken |= logits[i] <= std::numeric_limits<float>::max() ? 0u : 1u;
    if (logits[i] > peak.logit) {
      peak.logit = logits[i];
      from = i;
    }
  }
  if (broken != 0) {
    const auto bad =
        std::find_if(logits.begin(), logits.end(), [](float x) { return !(x <= std::numeric_limits<float>::max()); });
    throw invalid("the model produced {} logits (the first for token {})", std::isnan(*bad) ? "NaN" : "infinite",
                  bad - logits.begin());
  }
  while (logits[from] != peak.logit) ++from;
  peak.token = static_cast<TokenId>(from);
  return peak;
}

double log_sum_exp(std::span<const float> logits, float peak) {
  std::array<float, kWeightBlock> e;
  double sum = 0;
  for (size_t i = 0; i < logits.size(); i += kWeightBlock) {
    const size_t count = std::min(kWeightBlock, logits.size() - i);
    for_each_four(count, [&](size_t j, auto n) { store(exp4(load(&logits[i + j], n) - peak), &e[j], n); });
    sum += sum_lanes(std::span(e).first(count));
  }
  return static_cast<double>(peak) + std::log(sum);
}

double standard_deviation(std::span<const float> logits, float peak) {
  // Below the peak, so that little cancels.
  std::array<double, kLanes> count{}, sum{}, squares{};
  for (size_t i = 0; i < logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < std::min(kLanes, logits.size() - i); ++lane) {
      const bool possible = logits[i + lane] > -std::numeric_limits<float>::infinity();
      const double x = possible ? static_cast<double>(peak) - static_cast<double>(logits[i + lane]) : 0;
      count[lane] += possible ? 1 : 0;
      sum[lane] += x;
      squares[lane] += x * x;
    }
  }
  const auto add = [](const std::array<double, kLanes>& lanes) {
    return std::accumulate(lanes.begin(), lanes.end(), 0.0);
  };
  const double mean = add(sum) / add(count);
  return std::sqrt(std::max(0.0, add(squares) / add(count) - mean * mean));
}

void compute_weights(std::span<const float> logits, float peak, float temperature, std::span<float> weights) {
  assert(logits.size() == weights.size() && temperature > 0);
  for_each_four(logits.size(), [=](size_t i, auto n) {
    store(softmax_weight<Floats, Bits>(load(&logits[i], n), peak, temperature), &weights[i], n);
  });
}

void drop_below(std::span<const float> scores, float floor, std::span<float> weights) {
  assert(scores.size() == weights.size());
  for_each_four(weights.size(), [=](size_t i, auto n) {
    store(load(&scores[i], n) >= floor ? load(&weights[i], n) : Floats{}, &weights[i], n);
  });
}

double sum_blocks(std::span<const float> weights, std::vector<double>& block_mass) {
  block_mass.resize((weights.size() + kWeightBlock - 1) / kWeightBlock);
  double total = 0;
  for (size_t b = 0; b < block_mass.size(); ++b) {
    const size_t first = b * kWeightBlock;
    block_mass[b] = sum_lanes(weights.subspan(first, std::min(kWeightBlock, weights.size() - first)));
    total += block_mass[b];
  }
  return total;
}

}  // namespace quire
