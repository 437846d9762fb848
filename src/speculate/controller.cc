#include "speculate/controller.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace quire {
namespace {

// Gains below this are not taken: estimates are noisy, and the best of many looks better than it is.
constexpr double kLeastGain = 0.01;
constexpr double kLeastChance = 0.01;  // rows with less are not worth evaluating

// In steps without drafts. The first credit pays for finding out that a drafter is useless. Debts come from single
// steps and are bounded too: one disturbance must not end speculation for minutes.
constexpr double kFirstCredit = 6, kMostCredit = 8, kMostDebt = 32;

// Trials. A failed one doubles the interval, a success divides it by 8 (end_trial), so it grows unless a quarter of
// them succeed.
constexpr int kFirstInterval = 4, kLongestInterval = 256;
constexpr int kTrialDepth = 2;

// After so many drafted steps one goes without drafts, so that its cost stays known.
constexpr int kPlainEvery = 128;

// After so many steps with drafts that pay one has a row more, so that the next row's cost is known too.
constexpr int kDeeperEvery = 64;

constexpr double kOutlierStep = 2;  // a step that takes longer than expected by more was disturbed by others

}  // namespace

SpeculationController::SpeculationController(std::span<const DrafterTraits> drafters)
    : acceptance_(static_cast<int>(drafters.size())) {
  for (const DrafterTraits& traits : drafters)
    drafters_.push_back(Drafter{
        .traits = traits, .costs = DraftCosts(traits.pass_seconds, traits.row_seconds), .interval = kFirstInterval});
}

// The chance that the draft's token at `depth` is accepted, given that those before it were.
double SpeculationController::chance(int candidate, int depth) const {
  return chances_[static_cast<size_t>(candidate)][static_cast<size_t>(depth_level(depth))];
}

// The seconds of drafting that a further row adds, which makes a draft `depth` deep.
double SpeculationController::add_row(const DraftCandidate& c, int depth) {
  if (c.drafted) return 0;
  Drafter& d = drafters_[static_cast<size_t>(c.drafter)];
  const int passes = d.traits.sequential ? depth : 1;
  const double seconds = d.costs.seconds({std::max(0, passes - d.passes), 1});
  d.passes = std::max(d.passes, passes);
  return seconds;
}

// Gives rows to the picks, each to the draft whose next token is most likely accepted, and finds the number of rows
// with the best rate. Costs are stairs, so it looks beyond the first row that does not pay.
void SpeculationController::evaluate(const DraftBatch& batch, Policy& policy) {
  for (Drafter& d : drafters_) d.passes = 0;
  policy.order.clear();
  heap_.clear();
  depths_.assign(batch.candidates.size(), 0);
  for (const int candidate : policy.picks) {
    heap_.push_back({chance(candidate, 1), candidate});
    std::push_heap(heap_.begin(), heap_.end());
  }
  policy.rows = 0;
  policy.tokens = batch.sequences;
  policy.seconds = batch.seconds[0];
  policy.rate = policy.tokens / policy.seconds;
  double tokens = policy.tokens, drafting = 0;
  while (!heap_.empty() && policy.order.size() + 1 < batch.seconds.size()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Next next = heap_.back();
    heap_.pop_back();
    if (next.gain < kLeastChance) break;
    const DraftCandidate& c = batch.candidates[static_cast<size_t>(next.candidate)];
    const int depth = ++depths_[static_cast<size_t>(next.candidate)];
    policy.order.push_back(next.candidate);
    tokens += next.gain;
    drafting += add_row(c, depth);
    const double seconds = batch.seconds[policy.order.size()] + drafting;
    if (tokens / seconds > policy.rate) {
      policy.rows = policy.order.size();
      policy.tokens = tokens, policy.seconds = seconds, policy.rate = tokens / seconds;
    }
    if (depth == c.depth) continue;
    heap_.push_back({next.gain * chance(next.candidate, depth + 1), next.candidate});
    std::push_heap(heap_.begin(), heap_.end());
  }
}

// Of each sequence the candidate of the highest value above 0.
template <class Value>
void SpeculationController::pick(const DraftBatch& batch, Policy& policy, Value value) {
  policy.picks.clear();
  double best = 0;
  int sequence = -1;
  for (size_t i = 0; i < batch.candidates.size(); ++i) {
    const DraftCandidate& c = batch.candidates[i];
    if (c.depth <= 0) continue;
    const double v = value(static_cast<int>(i));
    if (v <= 0 || (c.sequence == sequence && v <= best)) continue;
    if (c.sequence == sequence) policy.picks.pop_back();
    policy.picks.push_back(static_cast<int>(i));
    sequence = c.sequence, best = v;
  }
}

// What the tokens expected of a candidate are worth above a price for each row, at the best depth; in tokens.
double SpeculationController::value_at(const DraftCandidate& c, int candidate, double row_price, double rate) const {
  const Drafter& d = drafters_[static_cast<size_t>(c.drafter)];
  const double pass_price = c.drafted ? 0 : d.costs.per_pass() * rate / std::max(1, d.offered);
  if (!c.drafted) row_price += d.costs.per_row() * rate;
  if (d.traits.sequential) row_price += pass_price;
  double value = d.traits.sequential ? 0 : -pass_price, best = 0, gain = 1;
  for (int depth = 1; depth <= c.depth && gain >= kLeastChance; ++depth) {
    gain *= chance(candidate, depth);
    value += gain - row_price;
    best = std::max(best, value);
  }
  return best;
}

// Leaves the best policy in best_: one drafter for all sequences, or for each sequence the one that is worth most at
// the prices that the best single drafter leads to.
void SpeculationController::find_best(const DraftBatch& batch) {
  best_.picks.clear();
  evaluate(batch, best_);
  int offered = 0;
  for (size_t d = 0; d < drafters_.size(); ++d) {
    if (drafters_[d].offered == 0) continue;
    ++offered;
    pick(batch, other_, [&](int candidate) {
      const bool his = static_cast<size_t>(batch.candidates[static_cast<size_t>(candidate)].drafter) == d;
      return his ? chance(candidate, 1) : 0;
    });
    evaluate(batch, other_);
    if (other_.rate > best_.rate) std::swap(best_, other_);
  }
  if (offered < 2) return;
  // Without drafts in the best policy, the price is the mean one of two rows for each sequence.
  const size_t most = batch.seconds.size() - 1;
  const size_t rows = best_.rows > 0 ? best_.rows : std::min(most, 2 * static_cast<size_t>(batch.sequences));
  if (rows == 0) return;
  const double price = (batch.seconds[rows] - batch.seconds[0]) / static_cast<double>(rows) * best_.rate;
  pick(batch, other_, [&](int candidate) {
    return value_at(batch.candidates[static_cast<size_t>(candidate)], candidate, price, best_.rate);
  });
  evaluate(batch, other_);
  if (other_.rate > best_.rate) std::swap(best_, other_);
}

// A short draft of a drafter that was idle for its interval, in place of what was best, if the credit can pay for it.
bool SpeculationController::choose_trial(const DraftBatch& batch, DraftChoice& choice) {
  int tried = -1;
  double most_urgent = 0;
  for (size_t i = 0; i < batch.candidates.size(); ++i) {
    const DraftCandidate& c = batch.candidates[i];
    const Drafter& d = drafters_[static_cast<size_t>(c.drafter)];
    if (c.depth <= 0 || d.idle < d.interval) continue;
    // First the drafter that has waited for the most intervals, then the draft that is most likely right.
    const int waits = d.idle / d.interval;
    const double urgency = waits + chance(static_cast<int>(i), 1);
    if (urgency > most_urgent) tried = static_cast<int>(i), most_urgent = urgency;
  }
  if (tried < 0) return false;
  const DraftCandidate& c = batch.candidates[static_cast<size_t>(tried)];
  Drafter& d = drafters_[static_cast<size_t>(c.drafter)];
  const int depth = std::min({c.depth, kTrialDepth, static_cast<int>(batch.seconds.size()) - 1});
  const double drafting = c.drafted ? 0 : d.costs.seconds({d.traits.sequential ? depth : 1, depth});
  const double seconds = batch.seconds[static_cast<size_t>(depth)] + drafting;
  if (depth <= 0 || seconds - choice.plain_seconds > credit_) return false;
  // It succeeds if that draft pays, or would if all sequences had one as good.
  const auto needed = [&](double seconds, int drafts) {
    const double rate = (1 + kLeastGain) * batch.sequences / choice.plain_seconds;
    return (seconds * rate - batch.sequences) / drafts;
  };
  const int most = std::min(d.offered * depth, static_cast<int>(batch.seconds.size()) - 1);
  const double all =
      drafting + batch.seconds[static_cast<size_t>(most)] + (c.drafted ? 0 : d.costs.per_row() * (most - depth));
  d.needed = std::min(needed(seconds, 1), needed(all, d.offered));
  d.idle = 0;
  d.trial = best_.rows > 0 ? Trial::kInstead : Trial::kAlone;
  choice.depths[static_cast<size_t>(tried)] = choice.rows = depth;
  choice.seconds = seconds;
  double gain = 1;
  for (int i = 1; i <= depth; ++i) choice.tokens += gain *= chance(tried, i);
  choice.trial = c.drafter;
  return true;
}

void SpeculationController::end_trial(Drafter& d, bool success) {
  // Where other drafts pay, a success that does not make this drafter the better one is no reason to try it soon.
  if (!success || d.trial == Trial::kInstead) {
    d.interval = std::min(2 * d.interval, kLongestInterval);
  } else {
    d.interval = std::max(d.interval / 8, 1);
  }
  d.trial = Trial::kNone;
}

void SpeculationController::choose(const DraftBatch& batch, DraftChoice& choice) {
  assert(batch.sequences > 0 && !batch.seconds.empty() && batch.seconds[0] > 0);
  choice.depths.assign(batch.candidates.size(), 0);
  choice.rows = 0;
  choice.plain_seconds = choice.seconds = batch.seconds[0];
  choice.sequences = batch.sequences;
  choice.tokens = batch.sequences;
  choice.trial = -1;
  if (!started_) credit_ = kFirstCredit * choice.plain_seconds;
  started_ = true;

  chances_.resize(batch.candidates.size());
  for (Drafter& d : drafters_) {
    if (d.trial != Trial::kNone) end_trial(d, false);  // it drafted nothing
    d.offered = 0;
  }
  for (size_t i = 0; i < batch.candidates.size(); ++i) {
    const DraftCandidate& c = batch.candidates[i];
    assert(c.sequence >= 0 && c.sequence < batch.sequences);
    chances_[i] = acceptance_.chances(c.drafter, c.confidence, c.request);
    drafters_[static_cast<size_t>(c.drafter)].offered += c.depth > 0;
  }
  for (Drafter& d : drafters_) d.idle += d.offered > 0;

  find_best(batch);
  if (best_.rate < (1 + kLeastGain) * choice.tokens / choice.plain_seconds) best_.rows = 0;
  if (credit_ <= 0 || drafted_steps_ >= kPlainEvery) best_.rows = 0;
  for (size_t i = 0; i < best_.rows; ++i) {
    Drafter& d = drafters_[static_cast<size_t>(batch.candidates[static_cast<size_t>(best_.order[i])].drafter)];
    d.idle = 0;
    d.interval = kFirstInterval;
  }
  if (drafted_steps_ < kPlainEvery && !choose_trial(batch, choice) && best_.rows > 0) {
    for (size_t i = 0; i < best_.rows; ++i) ++choice.depths[static_cast<size_t>(best_.order[i])];
    choice.rows = static_cast<int>(best_.rows);
    choice.seconds = best_.seconds;
    choice.tokens = best_.tokens;
    if (++paying_steps_ % kDeeperEvery == 0 && best_.rows < best_.order.size()) {
      ++choice.depths[static_cast<size_t>(best_.order[best_.rows])];
      choice.seconds += batch.seconds[best_.rows + 1] - batch.seconds[best_.rows];
      ++choice.rows;
    }
  }
  drafted_steps_ = choice.rows > 0 ? drafted_steps_ + 1 : 0;
}

void SpeculationController::learn(int drafter, int confidence, int drafted, int accepted, RequestAcceptance& request) {
  acceptance_.learn(drafter, confidence, drafted, accepted, request);
  Drafter& d = drafters_[static_cast<size_t>(drafter)];
  if (drafted > 0 && d.trial != Trial::kNone) end_trial(d, accepted >= d.needed);
}

void SpeculationController::learn_cost(int drafter, DraftWork work, double seconds) {
  drafters_[static_cast<size_t>(drafter)].costs.learn(work, seconds);
  drafting_ += seconds;
}

void SpeculationController::finish(const DraftChoice& choice, double seconds, int tokens) {
  credit_ += kLossShare * choice.plain_seconds;
  if (choice.rows > 0) {
    const double verifying = std::min(seconds - drafting_, kOutlierStep * choice.seconds);
    credit_ -= drafting_ + verifying - choice.plain_seconds * tokens / choice.sequences;
  }
  credit_ = std::clamp(credit_, -kMostDebt * choice.plain_seconds, kMostCredit * choice.plain_seconds);
  drafting_ = 0;
}

}  // namespace quire
