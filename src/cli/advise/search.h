// Which options to change, and to what: one at a time from the default, then combined greedily, within a budget of time.
// Nothing here knows what an option means or how it is measured.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/limits.h"

namespace quire {

// What one or more runs of a workload gave.
struct AdviceScore {
  double rate = 0;  // tokens of answers per second
  // The largest ratio of a 95th percentile to its bound; up to 1: the service level is met; 0: none is set.
  double violation = 0;
  double ttft = 0, tpot = 0;  // seconds, medians: to show, not to choose by

  bool meets() const { return violation <= 1; }
};

// By how much `other` is better than `base`; above 1: better. The ratio of rates if both meet the service level; else what
// counts is how far they miss it.
double gain_of(const AdviceScore& base, const AdviceScore& other);

// For each option the index of its value; 0: the default's.
using AdviceConfiguration = std::vector<size_t>;

struct AdviceValue {
  bool lossy = false;     // it changes the numbers of answers: its cost in quality is measured if it is faster
  bool baseline = false;  // measured to show what the default gains over it, never advised
};
struct AdviceOption {
  std::vector<AdviceValue> values;  // those after the default: value 1 is values[0]
};

// Two configurations, run in alternation.
struct PairedScores {
  std::vector<AdviceScore> base, other;  // as many; pair by pair
};

struct AdviceMeasures {
  // `rounds` runs of each. Throws Error: one of them cannot run.
  std::function<PairedScores(const AdviceConfiguration& base, const AdviceConfiguration& other, int rounds)> compare;
  // The KL divergence of the configuration from the default, in nats. Throws Error.
  std::function<double(const AdviceConfiguration&)> divergence;
  std::function<double()> elapsed;  // seconds since the budget began
};

// Runs of a few seconds on an idle machine repeat within 1 to 2 %. A gain below this is not worth a flag.
inline constexpr double kLeastAdviceGain = 1.03;

struct AdviceLimits {
  double budget = 180;     // seconds
  double most_kl = 0.001;  // nats; 0: no lossy values at all
};

// A value measured alone, against the default.
struct TriedValue {
  size_t option = 0, value = 0;
  // Over the default, median of the pairs; of a baseline: of rates alone. None: not measured.
  std::optional<double> gain;
  AdviceScore score;
  std::optional<double> kl;
  std::string not_tried;  // why
  bool advised = false;   // part of the best configuration
};

struct SearchResult {
  std::vector<TriedValue> tried;  // all values of all options: the first of each, then the second, …
  AdviceConfiguration best;
  double gain = 1;  // of the best configuration over the default, measured in alternation
  AdviceScore default_score, best_score;
  double kl = 0;         // of the best configuration
  double noise = 0;      // by how much the rates of two runs of the default differ, relative
  int runs = 0;          // of the workload
  bool complete = true;  // false: the budget ended the search
  double seconds = 0;
};

// The best configuration that was found, whose measured divergence is at most limits.most_kl. Throws Error: the default
// cannot run. An option that cannot run is left out, with the reason.
SearchResult search_advice(const std::vector<AdviceOption>& options, const AdviceMeasures& measures,
                           const AdviceLimits& limits);

// The best of all combinations of these values of each option (0 among them), baselines left out: what a search is compared
// with. A pair for each, then more for the few best and for `candidate`. Combinations that cannot run are left out.
struct ExhaustiveResult {
  AdviceConfiguration best;
  int combinations = 0;
  double best_gain = 1, candidate_gain = 1;  // over the default
  // The candidate's figure over the best's, measured in alternation; 1 if they are the same.
  double candidate_of_best = 1;
};
ExhaustiveResult search_exhaustively(const std::vector<std::vector<size_t>>& values,
                                     const std::vector<AdviceOption>& options, const AdviceMeasures& measures,
                                     const AdviceLimits& limits, const AdviceConfiguration& candidate);

}  // namespace quire
