// Chooses experts for each row (Routing, ops/experts.h): a warp for each. Softmax, choices, ties and NaN are those of
// ops/cpu/experts.cc, to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/nonlinearity.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/unroll.h"
#include "ops/experts.h"

namespace quire::cuda {

// Lane l has experts l, l + 32, .. in registers, kLaneExperts of them. Grid: x: rows / kWarps, rounded up.
template <int kLaneExperts>
struct ChooseExperts {
  static constexpr const char* kName = "choose_experts";
  static constexpr int kThreads = 128;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kMostExperts = 32 * kLaneExperts;
  static constexpr float kInfinity = std::numeric_limits<float>::infinity(), kExcluded = -kInfinity;
  static constexpr float kLeastSum = std::numeric_limits<float>::min();
  using Numbers = float[kLaneExperts];

  Routing routing;                         // at most 32 used, and 32 groups if they are limited
  Global<const float> correction, scales;  // [experts], or nullptr
  RowsAt<float> scores;                    // [rows, 2 * experts]
  int rows;
  int unused = 0;
  Global<int32_t> chosen;  // [rows][used]
  Global<float> weights;   // [rows][used]

  struct Best {
    float value;
    int expert;
  };

  static DEVICE int expert_of(int i) { return i * 32 + lane(); }
  DEVICE bool exists(int i) const { return expert_of(i) < routing.experts; }

  // Numbers come before NaN, larger before smaller, lower experts before higher ones; but of NaN alone, the last is the best.
  static DEVICE bool is_better(const Best& a, const Best& b) {
    if (is_nan(a.value)) return is_nan(b.value) && a.expert > b.expert;
    return is_nan(b.value) || a.value > b.value || (a.value == b.value && a.expert < b.expert);
  }

  // The same on all lanes.
  DEVICE Best largest(const Numbers& x) const {
    Best best{bits_float(0x7FFFFFFF), -1};
    UNROLL
    for (int i = 0; i < kLaneExperts; ++i) {
      const Best other{x[i], expert_of(i)};
      if (exists(i) && is_better(other, best)) best = other;
    }
    UNROLL
    for (int distance = 16; distance > 0; distance /= 2) {
      const Best other{shuffle_xor(best.value, distance), shuffle_xor(best.expert, distance)};
      if (is_better(other, best)) best = other;
    }
    return best;
  }

  static DEVICE void exclude(Numbers& x, int expert) {
    UNROLL
    for (int i = 0; i < kLaneExperts; ++i)
      if (expert_of(i) == expert) x[i] = kExcluded;
  }

  // Puts the numbers where every lane of the warp can read them. (A lane's array is only indexed by constants, or it would not
  // stay in registers.)
  DEVICE void publish(const Numbers& x, Global<float> to) const {
    sync_warp();  // what was there has been read
    UNROLL
    for (int i = 0; i < kLaneExperts; ++i) {
      if (exists(i)) to[expert_of(i)] = x[i];
    }
    sync_warp();
  }

  // The sum of 16 chains (kernels/lanes.h). chain: of number lane() % 16, + 16, ..
  static DEVICE float sum_chains(float chain) {
    UNROLL
    for (int distance = 8; distance > 0; distance /= 2) chain += shuffle_xor(chain, distance);
    return chain;
  }

  static DEVICE float largest_number(float x) {  // NaN is none
    x = is_nan(x) ? kExcluded : x;
    UNROLL
    for (int distance = 16; distance > 0; distance /= 2) {
      const float other = shuffle_xor(x, distance);
      x = x < other ? other : x;
    }
    return x;
  }

  DEVICE void softmax(Numbers& x) const {
    float most = kExcluded;
    UNROLL
    for (int i = 0; i < kLaneExperts; ++i)
      if (exists(i) && most < x[i]) most = x[i];
    most = largest_number(most);
    float chain = 0;
    UNROLL
    for (int i = 0; i < kLaneExperts; ++i) {
      if (exists(i)) x[i] = is_nan(x[i]) ? x[i] : exp_lane(x[i] - most);
      // A chain's next numbers are those of its two lanes.
      const float low = shuffle(x[i], lane() % 16), high = shuffle(x[i], lane() % 16 + 16);
      if (i * 32 + lane() % 16 < routing.experts) chain += low;
      if (i * 32 + lane() % 16 + 16 < routing.experts) chain += high;
    }
    const float sum = sum_chains(chain);
    UNROLL
    for (int i = 0; i < kLaneExperts; ++i) x[i] /= sum;
  }

  // The softmax of the chosen scores, one a lane.
  DEVICE float softmax_of_chosen(float x) const {
    const bool exists = lane() < routing.used;
    const float most = largest_number(exists ? x : kExcluded);
    const float y = is_nan(x) ? x : exp_lane(x - most);
    const float low = shuffle(y, lane() % 16), high = shuffle(y, lane() % 16 + 16);
    float chain = 0;
    if (lane() % 16 < routing.used) chain += low;
    if (lane() % 16 + 16 < routing.used) chain += high;
    return y / sum_chains(chain);
  }

  // The score of group lane(): its best expert's, or the sum of its two best. choices: [experts], in memory.
  DEVICE float group_score(Global<const float> choices) const {
    const int size = routing.experts / routing.groups;
    float first = kExcluded, second = kExcluded;
    if (lane() < routing.groups) {
      for (int i = lane() * size; i < (lane() + 1) * size; ++i) {
        const float value = choices[i];
        if (value > first) {
          second = first;
          first = value;
        } else if (value > second) {
          second = value;
        }
      }
    }
    return routing.group_by_two && size > 1 ? first + second : first;
  }

  // Excludes the experts of all but the best groups. spare: memory for [experts].
  DEVICE void limit_groups(Numbers& choice, Global<float> spare) const {
    publish(choice, spare);
    float score = group_score(spare);
    uint32_t excluded = 0;
    for (int left = routing.groups - routing.groups_used; left > 0; --left) {
      // The worst score above kExcluded; of equal ones the last group's. Without any, group 0.
      Best worst{kInfinity, 0};
      if (lane() < routing.groups && score > kExcluded) worst = {score, lane()};
      UNROLL
      for (int distance = 16; distance > 0; distance /= 2) {
        const Best other{shuffle_xor(worst.value, distance), shuffle_xor(worst.expert, distance)};
        if (other.value < worst.value || (other.value == worst.value && other.expert > worst.expert)) worst = other;
      }
      excluded |= 1u << worst.expert;
      if (lane() == worst.expert) score = kExcluded;
    }
    const int size = routing.experts / routing.groups;
    UNROLL
    for (int i = 0; i < kLaneExperts; ++i) {
      const int group = expert_of(i) / size;
      if (exists(i) && group < routing.groups && (excluded >> group & 1) != 0) choice[i] = kExcluded;
    }
  }

  // Scores::kSoftmaxOfNear. Returns the weight of choice lane(), whose expert is in `expert`. spare: memory for [experts].
  DEVICE float choose_among_near(const Numbers& x, Global<float> spare, int& expert) const {
    float weight = 0;
    for (int i = 0; i < routing.used; ++i) {
      Numbers choice;
      UNROLL
      for (int j = 0; j < kLaneExperts; ++j) choice[j] = x[j];
      for (int before = 0; before < i; ++before) exclude(choice, shuffle(expert, before));
      const Best best = largest(choice);
      UNROLL
      for (int j = 0; j < kLaneExperts; ++j) {
        const float size = magnitude_of(x[j]);
        if ((best.value - x[j]) / (size < best.value ? best.value : size) > routing.nearness) choice[j] = kExcluded;
      }
      softmax(choice);
      publish(choice, spare);
      if (lane() == i) {
        expert = best.expert;
        weight = spare[best.expert];
      }
    }
    return weight;
  }

  // All others, likewise. of_row: memory for the [experts] of x.
  DEVICE float choose(Numbers& x, Global<float> of_row, Global<float> spare, int& expert) const {
    if (routing.scores == Routing::Scores::kSoftmax) softmax(x);
    UNROLL
    for (int i = 0; i < kLaneExperts; ++i) {
      if (routing.scores == Routing::Scores::kSigmoid) x[i] = sigmoid_lane(x[i]);
    }
    publish(x, of_row);
    // From here on x is what is left to choose from.
    if (correction != nullptr) {
      UNROLL
      for (int i = 0; i < kLaneExperts; ++i) {
        if (exists(i)) x[i] += correction[expert_of(i)];
      }
    }
    if (routing.groups_used < routing.groups) limit_groups(x, spare);
    for (int i = 0; i < routing.used; ++i) {
      const Best best = largest(x);
      exclude(x, best.expert);
      if (lane() == i) expert = best.expert;
    }
    float weight = lane() < routing.used ? float(of_row[expert]) : 0.0f;
    if (routing.scores == Routing::Scores::kSoftmaxOfChosen) {
      weight = softmax_of_chosen(weight);
    } else if (routing.normalise) {
      float sum = 0;
      for (int i = 0; i < routing.used; ++i) sum += shuffle(weight, i);
      weight /= sum < kLeastSum ? kLeastSum : sum;
    }
    return weight * routing.scale;
  }

  DEVICE void operator()() const {
    const int row = block_x() * kWarps + warp();
    if (row >= rows) return;
    const Global<float> of_row = scores.row(row);
    Numbers x;
    UNROLL
    for (int i = 0; i < kLaneExperts; ++i) x[i] = exists(i) ? float(of_row[expert_of(i)]) : kExcluded;
    int expert = 0;
    float weight = routing.scores == Routing::Scores::kSoftmaxOfNear
                       ? choose_among_near(x, of_row + routing.experts, expert)
                       : choose(x, of_row, of_row + routing.experts, expert);
    if (lane() >= routing.used) return;
    if (scales != nullptr) weight *= scales[expert];
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(routing.used) + lane();
    chosen[at] = expert;
    weights[at] = weight;
  }
};

}  // namespace quire::cuda
