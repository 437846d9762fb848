#include "cli/advise/search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quire/error.h"

namespace quire {
namespace {

// A value that hardly helps or hurts alone may help with others: it is tried again if it lost less than this.
constexpr double kNearMiss = 0.93;
// Parts of the budget: single values, as many as fit; combinations; if these need less, more single values. The comparison
// with the default has the rest, unless there is nothing to compare.
constexpr double kSinglesPart = 0.6, kCombiningPart = 0.85, kUncomparedPart = 0.95;
constexpr const char* kBudgetSpent = "the budget was spent";
constexpr int kFinalRounds = 3, kCombiningRounds = 2;
constexpr size_t kFinalists = 4;  // of the exhaustive search

template <class Gain>
double median_of_pairs(const PairedScores& pairs, const Gain& gain) {
  Samples gains;
  for (size_t i = 0; i < pairs.base.size(); ++i) gains.add(gain(pairs.base[i], pairs.other[i]));
  return gains.median();
}

double median_gain(const PairedScores& pairs) { return median_of_pairs(pairs, gain_of); }

// Whatever the service level.
double median_rate_gain(const PairedScores& pairs) {
  return median_of_pairs(pairs, [](const AdviceScore& base, const AdviceScore& other) {
    return base.rate > 0 ? other.rate / base.rate : 1;
  });
}

AdviceScore median_score(const std::vector<AdviceScore>& scores) {
  const auto median = [&](double AdviceScore::*figure) {
    Samples samples;
    for (const AdviceScore& score : scores) samples.add(score.*figure);
    return samples.median();
  };
  return {.rate = median(&AdviceScore::rate),
          .violation = median(&AdviceScore::violation),
          .ttft = median(&AdviceScore::ttft),
          .tpot = median(&AdviceScore::tpot)};
}

void add_pairs(PairedScores& to, const PairedScores& more) {
  to.base.insert(to.base.end(), more.base.begin(), more.base.end());
  to.other.insert(to.other.end(), more.other.begin(), more.other.end());
}

// Of a lossy value. A bound of 0 allows none, even if its divergence on a short text rounds to 0.
bool is_allowed(double kl, const AdviceLimits& limits) { return limits.most_kl > 0 && kl <= limits.most_kl; }

class AdviceSearch {
 public:
  AdviceSearch(const std::vector<AdviceOption>& options, const AdviceMeasures& measures, const AdviceLimits& limits)
      : options_(options), measures_(measures), limits_(limits) {
    result_.best = default_configuration();
  }

  SearchResult run() {
    measure_default();
    list_values();
    measure_singles(kSinglesPart);
    combine();
    measure_singles(result_.best == default_configuration() ? kUncomparedPart : kCombiningPart);
    combine();
    confirm();
    for (TriedValue& tried : result_.tried) {
      tried.advised = result_.best[tried.option] == tried.value;
      result_.complete &= tried.not_tried != kBudgetSpent;
    }
    result_.seconds = measures_.elapsed();
    return std::move(result_);
  }

 private:
  AdviceConfiguration default_configuration() const { return AdviceConfiguration(options_.size(), 0); }
  const AdviceValue& value_of(size_t option, size_t value) const { return options_[option].values[value - 1]; }

  // Pairs differ: a baseline is slow, and loading may come with the first. The parts of the budget leave room for that.
  bool time_for(int rounds, double part) const {
    return measures_.elapsed() + rounds * pair_seconds_ / pairs_ <= part * limits_.budget;
  }

  PairedScores compare(const AdviceConfiguration& base, const AdviceConfiguration& other, int rounds) {
    const double before = measures_.elapsed();
    PairedScores pairs = measures_.compare(base, other, rounds);
    pair_seconds_ += measures_.elapsed() - before;
    pairs_ += rounds;
    result_.runs += 2 * rounds;
    return pairs;
  }

  // Against itself: the score, how long a pair takes, and how much runs differ.
  void measure_default() {
    const AdviceConfiguration start = default_configuration();
    const PairedScores pairs = compare(start, start, 1);
    result_.default_score = result_.best_score = median_score(pairs.base);
    result_.noise = std::abs(median_rate_gain(pairs) - 1);
  }

  // The first value of each option, then the second: if time is short, each option has at least been looked at.
  void list_values() {
    size_t most = 0;
    for (const AdviceOption& option : options_) most = std::max(most, option.values.size());
    for (size_t value = 1; value <= most; ++value) {
      for (size_t option = 0; option < options_.size(); ++option) {
        if (value <= options_[option].values.size())
          result_.tried.push_back({.option = option, .value = value, .not_tried = kBudgetSpent});
      }
    }
  }

  // A second pair for each: to look again, or to compare it with the default in the end.
  void measure_singles(double part) {
    for (TriedValue& tried : result_.tried) {
      if (tried.not_tried == kBudgetSpent && time_for(2, part)) measure_single(tried, part);
    }
  }

  void measure_single(TriedValue& tried, double part) {
    const AdviceValue& value = value_of(tried.option, tried.value);
    AdviceConfiguration other = default_configuration();
    other[tried.option] = tried.value;
    tried.not_tried.clear();
    try {
      PairedScores pairs = compare(default_configuration(), other, 1);
      // One pair may be luck: what looks good gets another.
      if (!value.baseline && median_gain(pairs) > kLeastAdviceGain && time_for(2, part))
        add_pairs(pairs, compare(default_configuration(), other, 1));
      tried.gain = value.baseline ? median_rate_gain(pairs) : median_gain(pairs);
      tried.score = median_score(pairs.other);
      if (value.lossy && *tried.gain > 1) tried.kl = measures_.divergence(other);
    } catch (const Error& e) {
      tried.not_tried = e.what();
    }
  }

  bool may_combine(const TriedValue& tried) const {
    const AdviceValue& value = value_of(tried.option, tried.value);
    if (!tried.gain || *tried.gain < kNearMiss || value.baseline) return false;
    return !value.lossy || (tried.kl && is_allowed(*tried.kl, limits_));
  }

  // Divergences of small changes add up, nearly; the sum is measured at the end.
  double sum_of_kl(const AdviceConfiguration& configuration) const {
    double sum = 0;
    for (const TriedValue& tried : result_.tried) {
      if (configuration[tried.option] == tried.value) sum += tried.kl.value_or(0);
    }
    return sum;
  }

  // Best single values first, each against the best combination so far, until a whole round changes nothing.
  void combine() {
    std::vector<const TriedValue*> order;
    for (const TriedValue& tried : result_.tried) {
      if (may_combine(tried)) order.push_back(&tried);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const TriedValue* a, const TriedValue* b) { return *a->gain > *b->gain; });
    // The best alone was measured already.
    if (!order.empty() && *order[0]->gain > kLeastAdviceGain && result_.best == default_configuration())
      result_.best[order[0]->option] = order[0]->value;
    for (bool changed = true; changed;) {
      changed = false;
      for (const TriedValue* tried : order) {
        // Its value, or without it.
        AdviceConfiguration other = result_.best;
        other[tried->option] = result_.best[tried->option] == tried->value ? 0 : tried->value;
        if (other == default_configuration() || sum_of_kl(other) > limits_.most_kl || was_compared(other)) continue;
        if (!time_for(kCombiningRounds, kCombiningPart)) {
          result_.complete = false;
          return;
        }
        changed |= try_instead(other);
      }
    }
  }

  bool was_compared(const AdviceConfiguration& other) const {
    return std::ranges::any_of(compared_, [&](const auto& pair) {
      return pair == std::pair(result_.best, other) || pair == std::pair(other, result_.best);
    });
  }

  bool try_instead(const AdviceConfiguration& other) {
    compared_.emplace_back(result_.best, other);
    try {
      if (median_gain(compare(result_.best, other, 1)) <= 1) return false;
      if (median_gain(compare(result_.best, other, kCombiningRounds)) <= kLeastAdviceGain) return false;
    } catch (const Error&) {  // it runs alone, but not with the others: memory
      return false;
    }
    result_.best = other;
    return true;
  }

  // The divergence of the whole, and its gain. Values that cost most quality go until the rest is within the bound.
  void confirm() {
    const AdviceConfiguration start = default_configuration();
    while (result_.best != start) {
      result_.kl = sum_of_kl(result_.best) > 0 ? measures_.divergence(result_.best) : 0;
      if (result_.kl <= limits_.most_kl) break;
      drop_costliest();
    }
    if (result_.best == start) return;
    const int rounds = time_for(kFinalRounds, 1) ? kFinalRounds : 1;
    const PairedScores pairs = compare(start, result_.best, rounds);
    result_.gain = median_gain(pairs);
    result_.default_score = median_score(pairs.base);
    result_.best_score = median_score(pairs.other);
    if (result_.gain > 1) return;
    result_.best = start;
    result_.best_score = result_.default_score;
    result_.gain = 1;
    result_.kl = 0;
  }

  void drop_costliest() {
    const TriedValue* worst = nullptr;
    for (const TriedValue& tried : result_.tried) {
      if (result_.best[tried.option] == tried.value && tried.kl && (!worst || *tried.kl > *worst->kl)) worst = &tried;
    }
    result_.best[worst->option] = 0;
    result_.kl = 0;
  }

  const std::vector<AdviceOption>& options_;
  const AdviceMeasures& measures_;
  const AdviceLimits limits_;
  SearchResult result_;
  std::vector<std::pair<AdviceConfiguration, AdviceConfiguration>> compared_;
  double pair_seconds_ = 0;
  int pairs_ = 0;
};

// All choices of one value of each option.
std::vector<AdviceConfiguration> combinations(const std::vector<std::vector<size_t>>& values) {
  std::vector<AdviceConfiguration> all{{}};
  for (const std::vector<size_t>& of_option : values) {
    std::vector<AdviceConfiguration> longer;
    for (const AdviceConfiguration& begun : all) {
      for (const size_t value : of_option) {
        longer.push_back(begun);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

}  // namespace

double gain_of(const AdviceScore& base, const AdviceScore& other) {
  if (base.meets() && other.meets()) return base.rate > 0 ? other.rate / base.rate : 1;
  if (other.meets()) return base.violation;
  if (base.meets()) return 1 / other.violation;
  return base.violation / other.violation;
}

SearchResult search_advice(const std::vector<AdviceOption>& options, const AdviceMeasures& measures,
                           const AdviceLimits& limits) {
  return AdviceSearch(options, measures, limits).run();
}

ExhaustiveResult search_exhaustively(const std::vector<std::vector<size_t>>& values,
                                     const std::vector<AdviceOption>& options, const AdviceMeasures& measures,
                                     const AdviceLimits& limits, const AdviceConfiguration& candidate) {
  const AdviceConfiguration start(options.size(), 0);
  const auto is_lossy = [&](const AdviceConfiguration& configuration) {
    for (size_t i = 0; i < configuration.size(); ++i) {
      if (configuration[i] > 0 && options[i].values[configuration[i] - 1].lossy) return true;
    }
    return false;
  };
  std::vector<std::pair<double, AdviceConfiguration>> ranked;
  for (const AdviceConfiguration& other : combinations(values)) {
    try {
      if (is_lossy(other) && !is_allowed(measures.divergence(other), limits)) continue;
      ranked.emplace_back(other == start ? 1 : median_gain(measures.compare(start, other, 1)), other);
    } catch (const Error&) {  // it cannot run
    }
  }
  ExhaustiveResult result{.best = start, .combinations = static_cast<int>(ranked.size())};
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  ranked.resize(std::min(ranked.size(), kFinalists));
  // The best of many single pairs was lucky, too.
  const auto measured = [&](const AdviceConfiguration& other) {
    return other == start ? 1 : median_gain(measures.compare(start, other, kFinalRounds));
  };
  for (const auto& [gain, other] : ranked) {
    if (const double again = measured(other); again > result.best_gain) {
      result.best_gain = again;
      result.best = other;
    }
  }
  result.candidate_gain = measured(candidate);
  if (candidate != result.best)
    result.candidate_of_best = median_gain(measures.compare(result.best, candidate, kFinalRounds));
  return result;
}

}  // namespace quire
