// The controller of speculation on costs that are learned while it decides.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "engine/step_costs.h"
#include "speculate/controller.h"

namespace quire {
namespace {

struct Outcome {
  double speed = 0;       // against no speculation
  double late_speed = 0;  // the speed of the last half
  double rows = 0;        // drafted for each step of the last half
};

// `sequences` answers of a model whose steps take seconds(rows), with drafts of up to 8 tokens.
template <class Seconds>
Outcome simulate(int sequences, double chance, Seconds seconds, int steps = 3000) {
  StepCostModel costs;
  SpeculationController controller(std::vector<DrafterTraits>{{}});
  std::vector<RequestAcceptance> requests(static_cast<size_t>(sequences));
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<double> table;
  std::vector<DraftCandidate> candidates(requests.size());
  DraftChoice choice;
  double time[2] = {}, tokens[2] = {}, rows[2] = {};
  for (int i = 0; i < steps; ++i) {
    table.clear();
    for (int r = 0; r <= 8 * sequences; ++r) table.push_back(costs.costs().seconds_at(sequences + r));
    for (size_t s = 0; s < requests.size(); ++s) {
      candidates[s].sequence = static_cast<int>(s);
      candidates[s].depth = 8;
      candidates[s].request = &requests[s];
    }
    controller.choose({sequences, candidates, table}, choice);
    int accepted_rows = 0;
    for (size_t s = 0; s < requests.size(); ++s) {
      int accepted = 0;
      while (accepted < choice.depths[s] && uniform(random) < chance) ++accepted;
      if (choice.depths[s] > 0) controller.learn(0, 0, choice.depths[s], accepted, requests[s]);
      accepted_rows += accepted;
    }
    const double took = seconds(sequences + choice.rows) * (0.95 + 0.1 * uniform(random));
    controller.finish(choice, took, sequences + accepted_rows);
    costs.learn({sequences + choice.rows, 0}, took);
    const int half = 2 * i / steps;
    time[half] += took, tokens[half] += sequences + accepted_rows, rows[half] += choice.rows;
  }
  const double plain = sequences / seconds(sequences);
  return {(tokens[0] + tokens[1]) / (time[0] + time[1]) / plain, tokens[1] / time[1] / plain, 2 * rows[1] / steps};
}

TEST(SpeculationCosts, FindThatRowsAreCheapThoughTheGuessIsNot) {
  const Outcome run = simulate(1, 0.9, [](int rows) { return 0.1 * (1 + 0.01 * rows); });
  EXPECT_GT(run.late_speed, 4.5);
  EXPECT_GT(run.rows, 7);
}

TEST(SpeculationCosts, FindThatRowsAreDearThoughTheGuessIsNot) {
  for (const int sequences : {1, 8, 32}) {
    const Outcome run = simulate(sequences, 0.6, [](int rows) { return 0.0004 * rows; });
    EXPECT_GT(run.speed, 0.97) << sequences;
    EXPECT_LT(run.rows, 0.5) << sequences;
  }
}

TEST(SpeculationCosts, FillTheTileThatIsPaidFor) {
  const Outcome run = simulate(1, 0.6, [](int rows) {
    const int tiles = (rows - 1) / 4;
    return rows == 1 ? 0.002 : 0.0022 + 0.001 * tiles;
  });
  EXPECT_NEAR(run.rows, 3, 0.3);
  EXPECT_GT(run.late_speed, 1.85);
}

TEST(SpeculationCosts, LoseLittleWhenNoDraftIsRight) {
  for (const int sequences : {1, 8, 32}) {
    EXPECT_GT(simulate(sequences, 0, [](int rows) { return 0.002 + 0.0001 * rows; }).speed, 0.97) << sequences;
    EXPECT_GT(simulate(sequences, 0, [](int rows) { return 0.001 * rows; }).speed, 0.97) << sequences;
  }
}

}  // namespace
}  // namespace quire
