// How likely a draft is accepted, learned from the drafts seen.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace quire {

// What a drafter says of a draft, for example by the length of its match: 0 little, 3 much.
inline constexpr int kConfidences = 4;

// Depths that share their counts: 1, 2, 3-4, 5-8, 9 and more.
inline constexpr int kDepthLevels = 5;
int depth_level(int depth);

// By level: the chance that a drafted token is accepted, given that those before it were.
using AcceptanceChances = std::array<double, kDepthLevels>;

// Accepted and judged tokens. Each further one makes the earlier ones count less.
struct AcceptanceCounts {
  float accepted = 0, judged = 0;
};
// [confidence][level]
using AcceptanceTable = std::array<std::array<AcceptanceCounts, kDepthLevels>, kConfidences>;

// Belongs to a request, or to each of its choices.
struct RequestAcceptance {
  std::vector<AcceptanceTable> drafters;
};

// Mean acceptance over all requests, which each request starts from and departs from by its own drafts. Deeper drafts
// start from shallower ones.
class AcceptanceModel {
 public:
  explicit AcceptanceModel(int drafters) : drafters_(static_cast<size_t>(drafters)) {}

  // request: nullptr for one that is not known yet.
  AcceptanceChances chances(int drafter, int confidence, const RequestAcceptance* request) const;
  // Of `drafted` tokens in a row, the first `accepted` were right.
  void learn(int drafter, int confidence, int drafted, int accepted, RequestAcceptance& request);

 private:
  std::vector<AcceptanceTable> drafters_;
};

}  // namespace quire
