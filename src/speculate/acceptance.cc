#include "speculate/acceptance.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace quire {
namespace {

constexpr float kForgetRequest = 0.95f;  // about the last 20 tokens: text changes within an answer
constexpr float kForgetModel = 0.995f;   // the last 200

// Of levels that a draft did not reach. Otherwise a few failures would keep drafts from ever being deep again.
constexpr float kFade = 0.99f;

constexpr std::array<double, kConfidences> kFirstChance{0.3, 0.45, 0.6, 0.75};

// What is known before any draft, in judged tokens: a drafter that is always wrong is given up after a few steps.
constexpr double kModelPrior = 2, kRequestPrior = 6;

// How much of a request's departure from the mean at one level is expected at the next one.
constexpr double kCarried = 0.7;

double mix(const AcceptanceCounts& c, double prior, double weight) {
  return (static_cast<double>(c.accepted) + weight * prior) / (static_cast<double>(c.judged) + weight);
}

void count(AcceptanceCounts& c, float forget, bool accepted) {
  c.accepted = c.accepted * forget + (accepted ? 1.0f : 0.0f);
  c.judged = c.judged * forget + 1;
}

}  // namespace

int depth_level(int depth) { return depth <= 2 ? depth - 1 : depth <= 4 ? 2 : depth <= 8 ? 3 : 4; }

AcceptanceChances AcceptanceModel::chances(int drafter, int confidence, const RequestAcceptance* request) const {
  const auto d = static_cast<size_t>(drafter), c = static_cast<size_t>(confidence);
  assert(d < drafters_.size() && c < kConfidences);
  const bool known = request && d < request->drafters.size();
  AcceptanceChances chances{};
  double mean = kFirstChance[c], departure = 0;
  for (size_t level = 0; level < kDepthLevels; ++level) {
    mean = mix(drafters_[d][c][level], mean, kModelPrior);
    const double prior = std::clamp(mean + kCarried * departure, 0.0, 1.0);
    chances[level] = known ? mix(request->drafters[d][c][level], prior, kRequestPrior) : prior;
    departure = chances[level] - mean;
  }
  return chances;
}

void AcceptanceModel::learn(int drafter, int confidence, int drafted, int accepted, RequestAcceptance& request) {
  const auto d = static_cast<size_t>(drafter), c = static_cast<size_t>(confidence);
  assert(d < drafters_.size() && c < kConfidences && accepted <= drafted);
  if (request.drafters.size() < drafters_.size()) request.drafters.resize(drafters_.size());
  const int judged = std::min(drafted, accepted + 1);
  if (judged <= 0) return;
  for (AcceptanceTable* table : {&drafters_[d], &request.drafters[d]}) {
    auto& levels = (*table)[c];
    const float forget = table == &drafters_[d] ? kForgetModel : kForgetRequest;
    for (int depth = 1; depth <= judged; ++depth)
      count(levels[static_cast<size_t>(depth_level(depth))], forget, depth <= accepted);
    for (auto level = static_cast<size_t>(depth_level(judged)) + 1; level < kDepthLevels; ++level) {
      levels[level].accepted *= kFade;
      levels[level].judged *= kFade;
    }
  }
}

}  // namespace quire
