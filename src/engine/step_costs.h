// How long a step takes, learned while running. The scheduler sizes prompt chunks with it, and speculation its drafts.
#pragma once

#include <array>
#include <cstddef>
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

// seconds = seconds_at(rows) + per_attended * attended. Kernels work in tiles of rows, so seconds over rows are stairs:
// a table has the corners of the small tiles and is linear between its knots and after the last one.
struct StepCosts {
  static constexpr std::array kKnots{0,  1,  2,  3,  4,  5,  6,   7,   8,   10,  12,  16,  20,
                                     24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 1024};
  using Table = std::array<double, kKnots.size()>;

  static constexpr StepCosts line(double fixed, double per_row, double per_attended) {
    StepCosts costs;
    for (size_t i = 0; i < kKnots.size(); ++i) costs.table[i] = fixed + per_row * kKnots[i];
    costs.per_attended = per_attended;
    return costs;
  }

  double seconds(StepWork work) const {
    return seconds_at(work.rows) + per_attended * static_cast<double>(work.attended);
  }
  // Of a step whose rows attend to nothing. Never decreases in rows.
  double seconds_at(int rows) const;
  // The most rows of a prompt with `computed` tokens that lengthen a step of `others` rows by at most `seconds`.
  int rows_within(double seconds, int computed, int others = 0) const;

  Table table{};  // seconds_at(kKnots[i]); what no rows take is the part of a step that does not depend on them
  double per_attended = 0;
};

// Fits StepCosts to the steps seen. A knot is the mean of the steps with about its number of rows, newer ones counting
// more; few of them are mixed with what the neighbours suggest, and the whole is kept from decreasing. So the table
// follows a machine whose speed changes, and rare slow steps change it little.
class StepCostModel {
 public:
  void learn(StepWork work, double seconds);
  const StepCosts& costs() const { return costs_; }

 private:
  struct Sample {
    double seconds = 0, attended = 0;
  };
  struct Knot {
    Sample mean;
    double weight = 0;  // how many steps the mean is worth; 0: none seen
    int seen = 0;       // up to the size of `recent`
    size_t next = 0;    // place in `recent`
    std::array<Sample, 3> recent;
  };

  double of_rows(Sample s) const;
  Sample typical(const Knot& knot) const;
  void add(Knot& knot, Sample s);
  void fit();

  // A guess that keeps the first chunks short.
  static constexpr StepCosts kGuess = StepCosts::line(0.005, 0.0005, 0);

  std::array<Knot, StepCosts::kKnots.size()> knots_;
  double covariance_ = 0, variance_ = 0;  // within knots: cov(seconds, attended), var(attended)
  StepCosts costs_ = kGuess;
};

}  // namespace quire
