// The search for advice on made-up landscapes, whose best combination is known.
#include "cli/advise/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "base/error.h"

namespace quire {
namespace {

// Rates and violations as functions of a configuration. Each run takes a second.
struct Landscape {
  std::vector<AdviceOption> options;
  std::function<AdviceScore(const AdviceConfiguration&)> score;
  std::function<double(const AdviceConfiguration&)> kl = [](const AdviceConfiguration&) { return 0.0; };
  double noise = 0;  // relative, of each run
  double seconds = 0;
  std::mt19937 random{7};

  AdviceScore run(const AdviceConfiguration& configuration) {
    seconds += 1;
    AdviceScore s = score(configuration);
    s.rate *= 1 + noise * (static_cast<double>(random() % 2001) / 1000 - 1);
    return s;
  }

  AdviceMeasures measures() {
    return {.compare =
                [this](const AdviceConfiguration& base, const AdviceConfiguration& other, int rounds) {
                  PairedScores pairs;
                  for (int i = 0; i < rounds; ++i) {
                    pairs.base.push_back(run(base));
                    pairs.other.push_back(run(other));
                  }
                  return pairs;
                },
            .divergence = [this](const AdviceConfiguration& c) { return kl(c); },
            .elapsed = [this] { return seconds; }};
  }

  SearchResult search(double budget = 1000, double most_kl = 0.001) {
    return search_advice(options, measures(), {.budget = budget, .most_kl = most_kl});
  }
};

std::vector<AdviceOption> options_with(const std::vector<size_t>& values) {
  std::vector<AdviceOption> options;
  for (const size_t count : values) options.push_back({std::vector<AdviceValue>(count)});
  return options;
}

// Independent factors: row i has those of option i's values, 1 for the default.
std::function<AdviceScore(const AdviceConfiguration&)> product(std::vector<std::vector<double>> factors) {
  return [factors](const AdviceConfiguration& c) {
    double rate = 100;
    for (size_t i = 0; i < c.size(); ++i) rate *= factors[i][c[i]];
    return AdviceScore{rate, 0};
  };
}

TEST(AdviceSearch, FindsTheBestOfIndependentOptions) {
  Landscape l{.options = options_with({3, 1, 2, 1}),
              .score = product({{1, 1.2, 1.5, 0.9}, {1, 0.7}, {1, 1.1, 1.05}, {1, 1.01}})};
  const SearchResult r = l.search();
  EXPECT_EQ(r.best, (AdviceConfiguration{2, 0, 1, 0}));  // 1 % is not worth a flag
  EXPECT_NEAR(r.gain, 1.5 * 1.1, 1e-9);
  EXPECT_TRUE(r.complete);
  for (const TriedValue& tried : r.tried) EXPECT_EQ(tried.advised, r.best[tried.option] == tried.value);
}

TEST(AdviceSearch, FindsWhatHelpsOnlyTogether) {
  Landscape l{.options = options_with({1, 1}), .score = [](const AdviceConfiguration& c) {
                const double rates[2][2] = {{100, 99}, {110, 150}};
                return AdviceScore{rates[c[0]][c[1]], 0};
              }};
  EXPECT_EQ(l.search().best, (AdviceConfiguration{1, 1}));
}

TEST(AdviceSearch, DoesNotCombineWhatHurtsTogether) {
  Landscape l{.options = options_with({1, 1}), .score = [](const AdviceConfiguration& c) {
                const double rates[2][2] = {{100, 120}, {130, 110}};
                return AdviceScore{rates[c[0]][c[1]], 0};
              }};
  EXPECT_EQ(l.search().best, (AdviceConfiguration{1, 0}));
}

TEST(AdviceSearch, ReplacesAValueByABetterOneOfTheSameOption) {
  // Alone, value 1 of the first option is the better one; with the second option, value 2.
  Landscape l{.options = options_with({2, 1}), .score = [](const AdviceConfiguration& c) {
                const double rates[3][2] = {{100, 140}, {130, 150}, {120, 180}};
                return AdviceScore{rates[c[0]][c[1]], 0};
              }};
  EXPECT_EQ(l.search().best, (AdviceConfiguration{2, 1}));
}

TEST(AdviceSearch, KeepsTheDefaultWhenNothingHelps) {
  Landscape l{.options = options_with({2, 2}), .score = product({{1, 0.9, 1.02}, {1, 0.5, 1}})};
  const SearchResult r = l.search();
  EXPECT_EQ(r.best, (AdviceConfiguration{0, 0}));
  EXPECT_EQ(r.gain, 1);
  EXPECT_EQ(r.best_score.rate, r.default_score.rate);
}

TEST(AdviceSearch, NeverAdvisesABaseline) {
  Landscape l{.options = options_with({1}), .score = product({{1, 2}})};
  l.options[0].values[0].baseline = true;
  const SearchResult r = l.search();
  EXPECT_EQ(r.best, AdviceConfiguration{0});
  EXPECT_NEAR(*r.tried[0].gain, 2, 1e-9);
}

TEST(AdviceSearch, LeavesOutWhatCostsTooMuchQuality) {
  Landscape l{.options = options_with({2, 1}), .score = product({{1, 2, 1.3}, {1, 1.2}})};
  l.options[0].values = {{.lossy = true}, {.lossy = true}};
  l.kl = [](const AdviceConfiguration& c) { return c[0] == 1 ? 0.003 : c[0] == 2 ? 0.0005 : 0; };
  const SearchResult strict = l.search();
  EXPECT_EQ(strict.best, (AdviceConfiguration{2, 1}));
  EXPECT_EQ(strict.kl, 0.0005);
  EXPECT_EQ(strict.tried[0].kl, 0.003);
  EXPECT_EQ(l.search(1e6, 0.003).best, (AdviceConfiguration{1, 1}));
  EXPECT_EQ(l.search(1e6, 0).best, (AdviceConfiguration{0, 1}));
  l.kl = [](const AdviceConfiguration&) { return 0; };
  EXPECT_EQ(l.search(1e6, 0).best, (AdviceConfiguration{0, 1}));
}

TEST(AdviceSearch, MeasuresTheQualityOfTheWhole) {
  Landscape l{.options = options_with({1, 1}), .score = product({{1, 2}, {1, 1.5}})};
  for (AdviceOption& option : l.options) option.values[0].lossy = true;
  // Within the bound alone and by their sum, but not together: the costlier one goes.
  l.kl = [](const AdviceConfiguration& c) { return c[0] && c[1] ? 0.002 : c[0] ? 0.0003 : c[1] ? 0.0004 : 0; };
  const SearchResult r = l.search();
  EXPECT_EQ(r.best, (AdviceConfiguration{1, 0}));
  EXPECT_EQ(r.kl, 0.0003);
}

TEST(AdviceSearch, MeetsTheServiceLevelFirst) {
  // Value 1 is faster but misses the bound; value 2 is slower and keeps it, as the default does not.
  Landscape l{.options = options_with({2, 1}), .score = [](const AdviceConfiguration& c) {
                const double rates[] = {100, 200, 80}, violations[] = {1.4, 1.2, 0.9};
                return AdviceScore{rates[c[0]] * (c[1] ? 1.1 : 1), violations[c[0]]};
              }};
  const SearchResult r = l.search();
  EXPECT_EQ(r.best, (AdviceConfiguration{2, 1}));
  EXPECT_TRUE(r.best_score.meets());
  EXPECT_FALSE(r.default_score.meets());
}

TEST(AdviceSearch, ComparesRatesWithABaselineWhateverTheServiceLevel) {
  Landscape l{.options = options_with({1}), .score = [](const AdviceConfiguration& c) {
                return AdviceScore{c[0] ? 25.0 : 100.0, c[0] ? 1e6 : 0.5};
              }};
  l.options[0].values[0].baseline = true;
  EXPECT_NEAR(*l.search().tried[0].gain, 0.25, 1e-9);
}

TEST(AdviceSearch, SpendsWhatCombiningLeavesOnMoreValues) {
  Landscape l{.options = options_with({1, 1, 1, 1, 1, 1, 1, 1}),
              .score = product(std::vector<std::vector<double>>(8, {1, 0.8}))};
  const SearchResult r = l.search(24);  // 18 of them for the values, of which 14 alone are for that
  EXPECT_TRUE(r.complete);
  EXPECT_LE(l.seconds, 24);
}

TEST(AdviceSearch, ComesAsCloseToTheServiceLevelAsItCan) {
  Landscape l{.options = options_with({2}), .score = [](const AdviceConfiguration& c) {
                const double violations[] = {3, 2, 4};
                return AdviceScore{100, violations[c[0]]};
              }};
  const SearchResult r = l.search();
  EXPECT_EQ(r.best, AdviceConfiguration{1});
  EXPECT_NEAR(r.gain, 1.5, 1e-9);
  EXPECT_FALSE(r.best_score.meets());
}

TEST(AdviceSearch, KeepsItsBudget) {
  for (const double budget : {5.0, 20.0, 40.0, 80.0}) {
    Landscape l{.options = options_with(std::vector<size_t>(12, 3)),
                .score = product(std::vector<std::vector<double>>(12, {1, 1.05, 1.06, 1.04}))};
    const SearchResult r = l.search(budget);
    EXPECT_LE(l.seconds, budget);
    EXPECT_FALSE(r.complete);
    EXPECT_EQ(r.tried.size(), 36u);
    const auto left_out = std::ranges::count_if(r.tried, [](const TriedValue& t) { return !t.not_tried.empty(); });
    EXPECT_GT(left_out, 0) << budget;
    EXPECT_EQ(r.runs, l.seconds);
  }
}

TEST(AdviceSearch, SaysHowMuchRunsDiffer) {
  Landscape l{.options = options_with({1}), .score = product({{1, 1}})};
  EXPECT_EQ(l.search().noise, 0);
  l.noise = 0.2;
  EXPECT_GT(l.search(1e6).noise, 0);
}

TEST(AdviceSearch, SaysWhyAnOptionCannotRun) {
  Landscape l{.options = options_with({2}), .score = [](const AdviceConfiguration& c) {
                if (c[0] == 1) throw no_resource("too large");
                return AdviceScore{c[0] ? 120.0 : 100.0, 0};
              }};
  const SearchResult r = l.search();
  EXPECT_EQ(r.best, AdviceConfiguration{2});
  EXPECT_FALSE(r.tried[0].gain);
  EXPECT_EQ(r.tried[0].not_tried, "too large");
}

TEST(AdviceSearch, ThrowsIfTheDefaultCannotRun) {
  Landscape l{.options = options_with({1}),
              .score = [](const AdviceConfiguration&) -> AdviceScore { throw no_resource("too large"); }};
  EXPECT_THROW(l.search(), Error);
}

// Random landscapes with pairwise interactions and noisy runs: within 10 % of the best combination.
TEST(AdviceSearch, ComesCloseToTheBestOfRandomLandscapes) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const auto within = [&](double low, double high) {
      return low + (high - low) * (static_cast<double>(random() % 1000) / 999);
    };
    const std::vector<size_t> counts{3, 1, 1, 2, 1};
    double alone[5][4], pairs[5][4][5][4];
    for (size_t i = 0; i < 5; ++i) {
      for (size_t v = 0; v < 4; ++v) {
        alone[i][v] = v ? within(0.7, 1.5) : 1;
        for (size_t j = 0; j < 5; ++j) {
          for (size_t w = 0; w < 4; ++w) pairs[i][v][j][w] = v && w ? within(0.95, 1.05) : 1;
        }
      }
    }
    const auto rate = [&](const AdviceConfiguration& c) {
      double r = 100;
      for (size_t i = 0; i < 5; ++i) {
        r *= alone[i][c[i]];
        for (size_t j = 0; j < i; ++j) r *= pairs[j][c[j]][i][c[i]];
      }
      return r;
    };
    Landscape l{.options = options_with(counts),
                .score =
                    [&](const AdviceConfiguration& c) {
                      return AdviceScore{rate(c), 0};
                    },
                .noise = 0.01};
    const SearchResult found = l.search();
    double best = 0;
    AdviceConfiguration c(5, 0);
    for (c[0] = 0; c[0] <= counts[0]; ++c[0])
      for (c[1] = 0; c[1] <= counts[1]; ++c[1])
        for (c[2] = 0; c[2] <= counts[2]; ++c[2])
          for (c[3] = 0; c[3] <= counts[3]; ++c[3])
            for (c[4] = 0; c[4] <= counts[4]; ++c[4]) best = std::max(best, rate(c));
    EXPECT_GE(rate(found.best), 0.9 * best) << "seed " << seed;
  }
}

TEST(ExhaustiveSearch, FindsTheBestAndComparesTheCandidate) {
  Landscape l{.options = options_with({2, 1}), .score = product({{1, 1.2, 1.5}, {1, 1.1}})};
  const ExhaustiveResult r = search_exhaustively({{0, 1, 2}, {0, 1}}, l.options, l.measures(), {}, {1, 1});
  EXPECT_EQ(r.combinations, 6);
  EXPECT_EQ(r.best, (AdviceConfiguration{2, 1}));
  EXPECT_NEAR(r.best_gain, 1.65, 1e-9);
  EXPECT_NEAR(r.candidate_gain, 1.32, 1e-9);
  EXPECT_NEAR(r.candidate_of_best, 0.8, 1e-9);
}

TEST(ExhaustiveSearch, KeepsTheQualityBound) {
  Landscape l{.options = options_with({1, 1}), .score = product({{1, 3}, {1, 1.1}})};
  l.options[0].values[0].lossy = true;
  l.kl = [](const AdviceConfiguration& c) { return c[0] ? 0.01 : 0; };
  const ExhaustiveResult r = search_exhaustively({{0, 1}, {0, 1}}, l.options, l.measures(), {}, {0, 1});
  EXPECT_EQ(r.combinations, 2);
  EXPECT_EQ(r.best, (AdviceConfiguration{0, 1}));
  EXPECT_EQ(r.candidate_of_best, 1);
}

}  // namespace
}  // namespace quire
