#include "speculate/controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace quire {
namespace {

constexpr double kPlain = 0.004;  // seconds of a step with one row

// Seconds over rows.
using Curve = std::function<double(int rows)>;
double flat(int rows) { return kPlain * (1 + 0.002 * (rows - 1)); }
double linear(int rows) { return kPlain * rows; }
double mild(int rows) { return kPlain * (1 + 0.15 * (rows - 1)); }
double tiles(int rows) {
  const int further = (rows - 1) / 4;
  return kPlain * (rows == 1 ? 1 : 1.1 + 0.5 * further);
}

// What a drafter is and does.
struct Tool {
  DrafterTraits traits = {};
  double pass_seconds = 0, row_seconds = 0;
  int depth = 8, confidence = 2;
};

struct Totals {
  double seconds = 0;
  int tokens = 0, rows = 0, drafted_steps = 0;
};

// Sequences that answer together. Each draft's next token is right with a chance that depends on sequence and drafter.
class Simulation {
 public:
  Simulation(int sequences, std::vector<Tool> tools, Curve curve, unsigned seed = 1)
      : chance([](int, int) { return 0.0; }),
        sequences_(sequences),
        tools_(std::move(tools)),
        curve_(std::move(curve)),
        controller_(traits(tools_)),
        requests_(static_cast<size_t>(sequences)),
        random_(seed) {
    for (int r = 0; r <= 16 * sequences; ++r) seconds_.push_back(curve_(sequences + r));
  }

  std::function<double(int sequence, int drafter)> chance;
  std::function<int(int sequence)> confidence = [](int) { return -1; };  // -1: the tool's
  double noise = 0.05;
  double disturbed = 0;  // share of steps that others make 20 times as long

  Totals run(int steps) {
    Totals totals;
    for (int i = 0; i < steps; ++i) step(totals);
    return totals;
  }

  // Tokens per second, compared with those without speculation.
  double speed(const Totals& t) const { return t.tokens / t.seconds / (sequences_ / curve_(sequences_)); }
  const std::vector<int>& rows_of() const { return rows_of_; }  // [sequences] in the last run's last step
  int uses(int drafter) const { return uses_[static_cast<size_t>(drafter)]; }
  void forget_uses() { uses_ = {}; }
  SpeculationController& controller() { return controller_; }
  RequestAcceptance& request(int sequence) { return requests_[static_cast<size_t>(sequence)]; }
  void renew(int sequence) { request(sequence) = {}; }

 private:
  static std::vector<DrafterTraits> traits(const std::vector<Tool>& tools) {
    std::vector<DrafterTraits> all;
    for (const Tool& tool : tools) all.push_back(tool.traits);
    return all;
  }
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  void step(Totals& totals) {
    std::vector<DraftCandidate> candidates;
    for (int s = 0; s < sequences_; ++s) {
      for (size_t d = 0; d < tools_.size(); ++d) {
        DraftCandidate c;
        c.sequence = s;
        c.drafter = static_cast<int>(d);
        c.confidence = confidence(s) < 0 ? tools_[d].confidence : confidence(s);
        c.depth = tools_[d].depth;
        c.request = &requests_[static_cast<size_t>(s)];
        candidates.push_back(c);
      }
    }
    controller_.choose({sequences_, candidates, seconds_}, choice_);
    ASSERT_EQ(choice_.depths.size(), candidates.size());
    rows_of_.assign(static_cast<size_t>(sequences_), 0);
    std::vector<DraftWork> works(tools_.size());
    int rows = 0, tokens = sequences_;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const DraftCandidate& c = candidates[i];
      const int depth = choice_.depths[i];
      ASSERT_LE(depth, c.depth);
      if (depth == 0) continue;
      ASSERT_EQ(rows_of_[static_cast<size_t>(c.sequence)], 0) << "two drafts of a sequence";
      rows_of_[static_cast<size_t>(c.sequence)] = depth;
      rows += depth;
      uses_[static_cast<size_t>(c.drafter)] += depth;
      DraftWork& work = works[static_cast<size_t>(c.drafter)];
      const bool sequential = tools_[static_cast<size_t>(c.drafter)].traits.sequential;
      work.passes = std::max(work.passes, sequential ? depth : 1);
      work.rows += depth;
      int accepted = 0;
      while (accepted < depth && uniform() < chance(c.sequence, c.drafter)) ++accepted;
      tokens += accepted;
      controller_.learn(c.drafter, c.confidence, depth, accepted, requests_[static_cast<size_t>(c.sequence)]);
    }
    ASSERT_EQ(rows, choice_.rows);
    double seconds = curve_(sequences_ + rows) * (1 + noise * (2 * uniform() - 1));
    if (disturbed > 0 && uniform() < disturbed) seconds *= 20;
    for (size_t d = 0; d < tools_.size(); ++d) {
      const double drafting = tools_[d].pass_seconds * works[d].passes + tools_[d].row_seconds * works[d].rows;
      if (works[d].passes > 0) controller_.learn_cost(static_cast<int>(d), works[d], drafting);
      seconds += drafting;
    }
    controller_.finish(choice_, seconds, tokens);
    totals.seconds += seconds;
    totals.tokens += tokens;
    totals.rows += rows;
    totals.drafted_steps += rows > 0;
  }

  int sequences_;
  std::vector<Tool> tools_;
  Curve curve_;
  std::vector<double> seconds_;
  SpeculationController controller_;
  std::vector<RequestAcceptance> requests_;
  std::mt19937 random_;
  DraftChoice choice_;
  std::vector<int> rows_of_;
  std::array<int, 8> uses_{};
};

Tool lookup(int depth = 8, int confidence = 2) { return {.depth = depth, .confidence = confidence}; }
Tool model(double pass_seconds, int depth = 8) {
  return {.traits = {true, pass_seconds, 0}, .pass_seconds = pass_seconds, .depth = depth};
}

TEST(SpeculationController, DraftsDeepWhenDraftsAreRightAndRowsAreCheap) {
  Simulation s(1, {lookup(16)}, flat);
  s.chance = [](int, int) { return 1.0; };
  EXPECT_GT(s.speed(s.run(20)), 5) << "from the first steps";
  const Totals later = s.run(200);
  EXPECT_GT(s.speed(later), 15);
  EXPECT_GT(later.rows, 200 * 15);
}

TEST(SpeculationController, LosesLittleWhenNoDraftIsRight) {
  const std::vector<std::pair<std::string, Curve>> curves{
      {"flat", flat}, {"linear", linear}, {"mild", mild}, {"tiles", tiles}};
  const std::vector<std::vector<Tool>> tools{{lookup()},
                                             {lookup(16, 3)},
                                             {model(0.3 * kPlain)},
                                             {lookup(16, 3), model(0.2 * kPlain), lookup(4), model(2 * kPlain)}};
  for (const auto& [name, curve] : curves) {
    for (const auto& set : tools) {
      for (const int sequences : {1, 4, 32}) {
        Simulation s(sequences, set, curve);
        EXPECT_GT(s.speed(s.run(2000)), 0.97)
            << name << ", " << set.size() << " drafters, " << sequences << " sequences";
        s.noise = 0;
        EXPECT_GT(s.speed(s.run(2000)), 0.978)
            << name << ", " << set.size() << " drafters, " << sequences << " sequences";
      }
    }
  }
}

TEST(SpeculationController, LosesLittleWhenTheCostOfADrafterIsUnderestimated) {
  Tool liar = model(kPlain);
  liar.traits.pass_seconds = 0;
  Simulation s(1, {liar}, flat);
  s.chance = [](int, int) { return 0.3; };
  EXPECT_GT(s.speed(s.run(2000)), 0.97);
}

TEST(SpeculationController, DoesNotDraftWhereRowsCostAsMuchAsSteps) {
  Simulation s(32, {lookup()}, linear);
  s.chance = [](int, int) { return 0.9; };
  const Totals t = s.run(1000);
  EXPECT_GT(s.speed(t), 0.99);
  EXPECT_LT(t.drafted_steps, 100);
}

TEST(SpeculationController, FollowsTheBeginningAndTheEndOfCopying) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Simulation s(1, {seed % 2 ? lookup() : model(0.1 * kPlain)}, mild, seed);
    bool copies = false;
    s.chance = [&](int, int) { return copies ? 0.95 : 0.02; };
    EXPECT_GT(s.speed(s.run(1000)), 0.97);
    copies = true;
    s.run(300);
    EXPECT_GT(s.speed(s.run(100)), 1.7) << "within one interval of trials";
    copies = false;
    s.run(40);
    EXPECT_LT(s.run(100).rows, 25) << "40 steps after the end";
    copies = true;
    s.run(40);
    EXPECT_GT(s.speed(s.run(100)), 1.7) << "after a short pause the interval is still short";
  }
}

TEST(SpeculationController, SeesFromUnverifiedDraftsThatSpeculatingPays) {
  Simulation s(1, {lookup()}, mild);
  s.run(1000);
  for (int i = 0; i < 10; ++i) s.controller().learn(0, 2, 2, 2, s.request(0));
  s.chance = [](int, int) { return 0.95; };
  EXPECT_GT(s.run(1).rows, 0) << "at once";
}

TEST(SpeculationController, GivesRowsToTheSequencesThatAcceptThem) {
  Simulation s(4, {lookup()}, mild);
  s.chance = [](int sequence, int) { return sequence == 2 ? 0.95 : 0.1; };
  s.run(200);
  std::vector<int> rows(4);
  for (int i = 0; i < 100; ++i) {
    s.run(1);
    for (size_t j = 0; j < 4; ++j) rows[j] += s.rows_of()[j];
  }
  EXPECT_GT(rows[2], 300);
  EXPECT_LT(rows[0] + rows[1] + rows[3], rows[2] / 10);
}

TEST(SpeculationController, TellsGoodDraftsByTheirConfidence) {
  Simulation s(1, {lookup()}, mild);
  int confidence = 0;
  s.confidence = [&](int) { return confidence; };
  s.chance = [&](int, int) { return confidence == 3 ? 0.95 : 0.05; };
  int rows[4] = {};
  for (int i = 0; i < 600; ++i) {
    confidence = i % 2 ? 3 : 0;
    const int now = s.run(1).rows;
    if (i >= 200) rows[confidence] += now;
  }
  EXPECT_GT(rows[3], 200 * 5);
  EXPECT_LT(rows[0], 40);
}

TEST(SpeculationController, PicksTheBetterDrafter) {
  // A draft model that is mostly right against a lookup that is mostly wrong, and the other way round.
  for (const bool model_is_better : {true, false}) {
    Simulation s(1, {lookup(), model(0.05 * kPlain)}, mild);
    s.chance = [&](int, int drafter) { return (drafter == 1) == model_is_better ? 0.9 : 0.2; };
    s.run(300);
    s.forget_uses();
    s.run(300);
    const int better = model_is_better ? 1 : 0;
    EXPECT_GT(s.uses(better), 500);
    EXPECT_LT(s.uses(1 - better), s.uses(better) / 10);
  }
}

TEST(SpeculationController, PrefersTheCheaperOfTwoEqualDrafters) {
  Simulation s(2, {model(0.2 * kPlain), lookup()}, mild);
  s.chance = [](int, int) { return 0.8; };
  s.run(200);
  s.forget_uses();
  s.run(200);
  EXPECT_GT(s.uses(1), 10 * s.uses(0));
}

TEST(SpeculationController, GivesEachSequenceItsOwnBestDrafter) {
  Simulation s(2, {lookup(), model(0.02 * kPlain)}, flat);
  s.chance = [](int sequence, int drafter) { return sequence == drafter ? 0.95 : 0.1; };
  s.run(600);
  const Totals t = s.run(300);
  EXPECT_GT(s.speed(t), 4);
}

TEST(SpeculationController, SharesThePassesOfADrafterAmongSequences) {
  // A pass costs 30 % of a step. Eight sequences could not pay for one each.
  const auto speed = [](int sequences) {
    Simulation s(sequences, {model(0.3 * kPlain, 4)}, [](int rows) { return kPlain * (1 + 0.02 * rows); });
    s.chance = [](int, int) { return 0.7; };
    s.run(300);
    return s.speed(s.run(1000));
  };
  EXPECT_GT(speed(1), 1.15);
  EXPECT_GT(speed(8), 1.1);
}

TEST(SpeculationController, FillsTheTileThatIsPaidFor) {
  // Up to 4 rows cost the same, the fifth half a step more.
  Simulation s(1, {lookup()}, tiles);
  s.chance = [](int, int) { return 0.6; };
  s.run(300);
  std::array<int, 17> depths{};
  for (int i = 0; i < 300; ++i) {
    s.run(1);
    ++depths[static_cast<size_t>(s.rows_of()[0])];
  }
  EXPECT_GT(depths[3], 240);
}

TEST(SpeculationController, ComesNearTheBestFixedDepth) {
  for (const double chance : {0.3, 0.6, 0.8, 0.95}) {
    for (const Curve& curve : {Curve(flat), Curve(mild), Curve(tiles)}) {
      for (unsigned seed = 0; seed < 5; ++seed) {
        Simulation s(1, {lookup()}, curve, seed);
        s.chance = [&](int, int) { return chance; };
        s.run(200);
        double best = 1;
        for (int depth = 1; depth <= 8; ++depth)
          best = std::max(best, (1 - std::pow(chance, depth + 1)) / (1 - chance) / curve(1 + depth) * kPlain);
        EXPECT_GT(s.speed(s.run(4000)), 0.93 * best) << chance << " accepted, " << curve(5) / kPlain;
      }
    }
  }
}

// Whatever comes: drafters whose quality and cost change, requests that come and go.
TEST(SpeculationController, NeverLosesMoreThanItsBudget) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const auto uniform = [&] { return std::uniform_real_distribution<double>(0, 1)(random); };
    const int sequences = 1 + static_cast<int>(random() % 8);
    const double slope = uniform(), step = uniform();
    std::vector<Tool> tools;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      Tool tool = random() % 2 ? lookup(1 + static_cast<int>(random() % 16), static_cast<int>(random() % 4))
                               : model(uniform() * uniform() * kPlain, 1 + static_cast<int>(random() % 8));
      if (random() % 2) tool.traits.pass_seconds *= 2 * uniform();
      tools.push_back(tool);
    }
    Simulation s(
        sequences, tools,
        [=](int rows) {
          const int tiles = rows / 4;
          return kPlain * (1 + slope * rows + step * tiles);
        },
        seed);
    std::vector<double> chances(8);
    s.chance = [&](int, int drafter) { return chances[static_cast<size_t>(drafter)]; };
    Totals all;
    for (int phase = 0; phase < 20; ++phase) {
      for (double& chance : chances) chance = random() % 3 ? 0.3 * uniform() * uniform() : uniform();
      s.renew(static_cast<int>(random() % static_cast<unsigned>(sequences)));
      const Totals t = s.run(100);
      all.seconds += t.seconds, all.tokens += t.tokens;
    }
    EXPECT_GT(s.speed(all), 0.97) << "seed " << seed;
  }
}

TEST(SpeculationController, GoesOnWhenOthersDisturbTheMachine) {
  Simulation s(1, {lookup()}, mild);
  s.disturbed = 0.03;
  s.chance = [](int, int) { return 0.7; };
  EXPECT_GT(s.run(2000).drafted_steps, 1900);
}

TEST(SpeculationController, MeasuresStepsWithoutDraftsFromTimeToTime) {
  Simulation s(1, {lookup()}, flat);
  s.chance = [](int, int) { return 1.0; };
  const Totals t = s.run(1000);
  EXPECT_GE(t.drafted_steps, 980);
  EXPECT_LE(t.drafted_steps, 995);
}

TEST(SpeculationController, ReportsWhatItExpects) {
  SpeculationController controller(std::vector<DrafterTraits>{{true, 0.001, 0}});
  RequestAcceptance request;
  for (int i = 0; i < 200; ++i) controller.learn(0, 3, 4, 4, request);
  const std::vector<DraftCandidate> candidates{{.drafter = 0, .confidence = 3, .depth = 2, .request = &request}};
  const std::vector<double> seconds{0.010, 0.011, 0.012, 0.013};
  DraftChoice choice;
  controller.choose({1, candidates, seconds}, choice);
  EXPECT_EQ(choice.depths, std::vector<int>{2});
  EXPECT_EQ(choice.plain_seconds, 0.010);
  EXPECT_NEAR(choice.seconds, 0.014, 1e-12);
  EXPECT_NEAR(choice.tokens, 3, 0.1);
  EXPECT_EQ(choice.trial, -1);
  // A draft that is made already costs only its rows.
  std::vector<DraftCandidate> made = candidates;
  made[0].drafted = true;
  controller.choose({1, made, seconds}, choice);
  EXPECT_NEAR(choice.seconds, 0.012, 1e-12);
  // No rows are left.
  controller.choose({1, candidates, std::span(seconds).first(1)}, choice);
  EXPECT_EQ(choice.rows, 0);
}

}  // namespace
}  // namespace quire
