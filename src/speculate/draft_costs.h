// How long drafting takes, learned while running.
#pragma once

#include <array>

namespace quire {

// What a drafter does for a step.
struct DraftWork {
  int passes = 0;  // calls one after the other, each for all its sequences
  int rows = 0;    // tokens drafted for all its sequences
};

// seconds = per_pass * passes + per_row * rows, by recursive least squares with forgetting.
class DraftCosts {
 public:
  // With a guess of the costs.
  DraftCosts(double per_pass, double per_row);
  void learn(DraftWork work, double seconds);

  double seconds(DraftWork work) const { return per_pass() * work.passes + per_row() * work.rows; }
  double per_pass() const { return costs_[0] > 0 ? costs_[0] : 0; }
  double per_row() const { return costs_[1] > 0 ? costs_[1] : 0; }

 private:
  using Pair = std::array<double, 2>;
  Pair costs_;
  int seen_ = 0;                // drafts, up to a bound
  std::array<Pair, 2> spread_;  // inverse correlation of the terms seen
};

}  // namespace quire
