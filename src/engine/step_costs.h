// How long a step takes, learned while running: what the scheduler cuts prompts by.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

// What a step computes.
struct StepWork {
  int rows = 0;
  int64_t attended = 0;  // tokens that its rows look at, summed over the rows

  // `more` rows of a sequence of which `computed` tokens are done: the first looks at those and itself.
  void add(int more, int computed) {
    rows += more;
    attended += int64_t{more} * (computed + 1) + int64_t{more} * (more - 1) / 2;
  }
};

// seconds = fixed + per_row * rows + per_attended * attended. A plain value; the start is a guess that keeps the first
// chunks short.
struct StepCosts {
  double fixed = 0.005, per_row = 0.0005, per_attended = 0;

  double seconds(StepWork work) const {
    return fixed + per_row * work.rows + per_attended * static_cast<double>(work.attended);
  }
  // Rows of a prompt, of which `computed` tokens are done, that take at most `seconds`; as if nothing else was to do.
  int rows_within(double seconds, int computed) const;
};

// Fits StepCosts to the steps seen: recursive least squares that forgets, so that it follows the machine.
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
