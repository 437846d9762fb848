// How long a step takes, learned while running. The scheduler sizes prompt chunks with it.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

// The amount of work of a step.
struct StepWork {
  int rows = 0;
  int64_t attended = 0;  // tokens that each row attends to, summed over the rows

  // Adds `more` rows of a sequence with `computed` tokens: its i-th row, from 1, attends to computed + i tokens.
  void add(int more, int computed) {
    rows += more;
    attended += int64_t{more} * (computed + 1) + int64_t{more} * (more - 1) / 2;
  }
};

// seconds = fixed + per_row * rows + per_attended * attended. The initial values are a guess that keeps the first
// chunks short.
struct StepCosts {
  double fixed = 0.005, per_row = 0.0005, per_attended = 0;

  double seconds(StepWork work) const {
    return fixed + per_row * work.rows + per_attended * static_cast<double>(work.attended);
  }
  // The most rows of a prompt with `computed` tokens that take at most `seconds`, ignoring other work in the step.
  int rows_within(double seconds, int computed) const;
};

// Fits StepCosts to the steps seen, by recursive least squares with forgetting, so it adapts when the machine's speed
// changes.
class StepCostModel {
 public:
  StepCostModel();
  void learn(StepWork work, double seconds);
  const StepCosts& costs() const { return costs_; }

 private:
  static constexpr int kTerms = 3;
  using Vector = std::array<double, kTerms>;

  Vector weights_{};                   // of the scaled terms
  std::array<Vector, kTerms> spread_;  // inverse correlation of the terms seen
  StepCosts costs_;
};

}  // namespace quire
