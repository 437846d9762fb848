#include "speculate/rejection.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "sampling/philox.h"

namespace quire {
namespace {

using Weights = std::vector<float>;

TokenWeights weights_of(const Weights& w) {
  double total = 0;
  for (const float x : w) total += static_cast<double>(x);
  return {w, total};
}

std::vector<double> probabilities(const Weights& w) {
  const double total = weights_of(w).total;
  std::vector<double> p;
  for (const float x : w) p.push_back(static_cast<double>(x) / total);
  return p;
}

constexpr int kDraws = 250000;

// Counts of tokens against their probabilities: total variation, and chi-square within 4 standard deviations.
void expect_follows(const std::vector<int>& counts, const std::vector<double>& p, const std::string& what) {
  double draws = 0, chi2 = 0, variation = 0;
  for (const int n : counts) draws += n;
  int cells = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = draws * p[i];
    variation += std::fabs(counts[i] - expected) / (2 * draws);
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << what << ": impossible token " << i;
    }
    if (expected < 5) continue;
    ++cells;
    chi2 += std::pow(counts[i] - expected, 2) / expected;
  }
  const double freedom = std::max(1, cells - 1);
  EXPECT_LT(chi2, freedom + 4 * std::sqrt(2 * freedom) + 4) << what;
  EXPECT_LT(variation, 2 * std::sqrt(static_cast<double>(p.size()) / draws)) << what;
}

struct Pair {
  std::string name;
  Weights p, q;
  double accepted;  // sum of min(p, q)
};

std::vector<Pair> pairs() {
  Weights wide(64), other(64), cut(64), peaked(64, 1e-4f), flat(64, 1.0f), low(64), high(64);
  for (size_t i = 0; i < 64; ++i) {
    const double x = static_cast<double>(i);
    wide[i] = static_cast<float>(std::exp(-x / 12));
    other[i] = static_cast<float>(1 + std::sin(x));
    cut[i] = i < 8 ? wide[i] : 0;
    (i < 32 ? low : high)[i] = static_cast<float>(1 + i % 5);
  }
  peaked[5] = 1;
  std::vector<Pair> all;
  const auto add = [&](std::string name, const Weights& p, const Weights& q) {
    const std::vector<double> a = probabilities(p), b = probabilities(q);
    double shared = 0;
    for (size_t i = 0; i < a.size(); ++i) shared += std::min(a[i], b[i]);
    all.push_back({std::move(name), p, q, shared});
  };
  add("equal", wide, wide);
  add("disjoint", low, high);
  add("p is a truncation of q", cut, wide);
  add("q is a truncation of p", wide, cut);
  add("p is near one-hot", peaked, flat);
  add("q is near one-hot", flat, peaked);
  add("different", wide, other);
  return all;
}

TEST(Rejection, FollowsTheTargetsDistributionWhateverTheDrafts) {
  for (const Pair& pair : pairs()) {
    const TokenWeights p = weights_of(pair.p), q = weights_of(pair.q);
    std::vector<int> drafts(pair.p.size()), tokens(pair.p.size());
    int accepted = 0;
    for (int i = 0; i < kDraws; ++i) {
      const DrawKey key{11, 2, static_cast<uint64_t>(i)};
      const TokenId draft = draw_draft(q, key);
      ++drafts[static_cast<size_t>(draft)];
      const Judged judged = judge_draft(draft, q, p, key);
      ++tokens[static_cast<size_t>(judged.token)];
      accepted += judged.accepted;
      if (judged.accepted) {
        ASSERT_EQ(judged.token, draft);
      }
    }
    expect_follows(drafts, probabilities(pair.q), pair.name + ", drafts");
    expect_follows(tokens, probabilities(pair.p), pair.name);
    const double deviation = std::sqrt(pair.accepted * (1 - pair.accepted) / kDraws);
    EXPECT_NEAR(accepted / double{kDraws}, pair.accepted, 4 * deviation + 1e-9) << pair.name;
  }
}

TEST(Rejection, FollowsTheTargetsDistributionForDeterministicDrafts) {
  const Pair pair = pairs().back();
  const TokenWeights p = weights_of(pair.p);
  std::vector<int> tokens(pair.p.size());
  for (int i = 0; i < kDraws; ++i)
    ++tokens[static_cast<size_t>(judge_draft(i % 7, {}, p, {5, 0, static_cast<uint64_t>(i)}).token)];
  expect_follows(tokens, probabilities(pair.p), "q is one-hot");
}

// Two Markov chains: the target's and the drafter's next token depend on the last one. A chain of three drafts, cut at
// the first replacement, must give the target's distribution of pairs of tokens.
TEST(Rejection, FollowsTheTargetsDistributionAlongAChainOfDrafts) {
  constexpr int kVocab = 5, kDepth = 3;
  std::vector<Weights> target(kVocab, Weights(kVocab)), drafter = target;
  for (int from = 0; from < kVocab; ++from) {
    for (int to = 0; to < kVocab; ++to) {
      target[from][to] = static_cast<float>(1 + (from * 3 + to * 2) % 7);
      drafter[from][to] = (from + to) % 4 == 3 ? 0 : static_cast<float>(1 + (from * 2 + to * 5) % 6);
    }
  }
  std::vector<std::vector<int>> followed(kVocab, std::vector<int>(kVocab));
  std::vector<int> lengths(kDepth + 1);
  TokenId last = 0;
  for (uint64_t position = 0; position < kDraws;) {
    TokenId drafts[kDepth], from = last;
    for (int i = 0; i < kDepth; ++i) from = drafts[i] = draw_draft(weights_of(drafter[from]), {3, 1, position + i});
    int kept = 0;
    for (bool accepted = true; accepted && kept < kDepth; kept += accepted) {
      const Judged judged =
          judge_draft(drafts[kept], weights_of(drafter[last]), weights_of(target[last]), {3, 1, position});
      accepted = judged.accepted;
      ++followed[last][judged.token];
      last = judged.token;
      ++position;
    }
    ++lengths[kept];
  }
  for (int from = 0; from < kVocab; ++from)
    expect_follows(followed[from], probabilities(target[from]), "after " + std::to_string(from));
  for (const int n : lengths) EXPECT_GT(n, kDraws / 100) << "drafts end at every depth";
}

TEST(Rejection, AcceptsEveryDraftOfAnEqualDistribution) {
  const Weights w{1, 0.3f, 0x1p-33f, 0, 0.7f};
  for (uint64_t i = 0; i < 20000; ++i) {
    const DrawKey key{i, 0, 9};
    const TokenId draft = draw_draft(weights_of(w), key);
    EXPECT_EQ(judge_draft(draft, weights_of(w), weights_of(w), key), (Judged{draft, true}));
  }
}

// The rule on weights that sample() draws from, at two temperatures and with top_k.
TEST(Rejection, FollowsWhatTheSamplerDraws) {
  std::vector<float> logits(40);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 3 * static_cast<float>(std::sin(i * 1.7));
  const SamplingParams params{.temperature = 0.8f, .top_k = 9, .top_p = 0.95f};
  SamplerScratch scratch, target_scratch;
  std::vector<float> copy = logits;
  const TokenWeights q = weigh_tokens({.temperature = 1.5f}, SampleRow{copy, {}, {}, {}}, scratch);
  std::vector<float> again = logits;
  const TokenWeights p = weigh_tokens(params, SampleRow{again, {}, {}, {}}, target_scratch);
  std::vector<int> tokens(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    const DrawKey key{1, 0, static_cast<uint64_t>(i)};
    ++tokens[static_cast<size_t>(judge_draft(draw_draft(q, key), q, p, key).token)];
  }
  expect_follows(tokens, probabilities({p.weights.begin(), p.weights.end()}), "rejection");
  SamplerScratch sample_scratch;
  std::vector<int> sampled(logits.size());
  for (int i = 0; i < 20000; ++i) {
    copy = logits;
    const Sampled s = sample(params, SampleRow{copy, {}, {}, {}, static_cast<uint64_t>(i)}, sample_scratch);
    ++sampled[static_cast<size_t>(s.token)];
  }
  expect_follows(sampled, probabilities({p.weights.begin(), p.weights.end()}), "sample()");
}

}  // namespace
}  // namespace quire
