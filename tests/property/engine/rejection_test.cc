// --speculative-acceptance rejection: sampled answers have the distribution that they have without speculation, and
// everything else has the same bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unit/engine/drafters.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::answer;
using testing::Answers;
using testing::answers_together;
using testing::expect_same;
using testing::golden;
using testing::random_tokens;

EngineOptions base() { return testing::undrafted_options(32, 128); }

// temperature: at which the drafter and the target agree on some tokens. Random heads are sure of theirs.
struct Drafter {
  std::string name;
  float temperature;
  std::function<void(EngineOptions&)> choose;
  friend std::ostream& operator<<(std::ostream& out, const Drafter& d) { return out << d.name; }
};

class RejectionDrafters : public ::testing::TestWithParam<Drafter> {
 protected:
  RejectionDrafters() {
    GetParam().choose(options_);
    options_.speculative_acceptance = DraftAcceptance::kRejection;
    options_.speculate_always = true;
    options_.num_speculative_tokens = 2;
  }
  EngineOptions plain_options() const {
    EngineOptions o = base();
    o.model = options_.model;
    return o;
  }
  EngineOptions options_ = base();
};

// How often answers have which third and fourth token, the two of a draft: each alone, and the remainders of both.
using Counts = std::array<std::map<TokenIds, int>, 3>;
void add(Counts& counts, const TokenIds& answer) {
  const TokenId a = answer[2], b = answer[3];
  ++counts[0][{a}];
  ++counts[1][{b}];
  ++counts[2][{a % 16, b % 16}];
}
constexpr int kTokens = 5, kChoices = 100, kAnswers = 200 * kChoices;

Counts count(const EngineOptions& o, float temperature, uint64_t first_seed) {
  Engine engine(o);
  std::vector<Request> requests;
  for (uint64_t i = 0; i < kAnswers / kChoices; ++i) {
    Request& r = requests.emplace_back();
    r.prompt = random_tokens(3, 20);
    r.sampling.temperature = temperature;
    r.sampling.top_p = 0.97f;
    r.sampling.repetition_penalty = 1.3f;  // which drafters do not know
    r.sampling.seed = first_seed + i;
    r.sampling.max_tokens = kTokens;
    r.sampling.ignore_eos = true;
    r.sampling.n = kChoices;
  }
  Counts counts;
  for (const Answers& choices : answers_together(engine, requests)) {
    for (const Answer& a : choices) add(counts, a.tokens);
  }
  if (o.speculative != Speculation::kOff) {
    EXPECT_GT(engine.stats().accepted_tokens, kAnswers / 10u);
    EXPECT_LT(engine.stats().accepted_tokens, engine.stats().drafted_tokens * 9 / 10);
  }
  return counts;
}

// Chi-square of two samples of equal size, as its distance from its mean in standard deviations.
double distance(const std::map<TokenIds, int>& a, const std::map<TokenIds, int>& b) {
  std::map<TokenIds, std::pair<int, int>> both;
  for (const auto& [tokens, n] : a) both[tokens].first = n;
  for (const auto& [tokens, n] : b) both[tokens].second = n;
  std::pair<int, int> rare;
  double chi2 = 0;
  int cells = 0;
  const auto add = [&](const std::pair<int, int>& cell) {
    if (cell.first + cell.second == 0) return;
    chi2 += std::pow(cell.first - cell.second, 2) / (cell.first + cell.second);
    ++cells;
  };
  for (const auto& [tokens, cell] : both) {
    if (cell.first + cell.second >= 20) {
      add(cell);
    } else {
      rare.first += cell.first;
      rare.second += cell.second;
    }
  }
  add(rare);
  EXPECT_GT(cells, 100);
  return (chi2 - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
}

double largest_distance(const Counts& a, const Counts& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, distance(a[i], b[i]));
  return largest;
}

// Without speculation.
const Counts& exact_counts(const EngineOptions& plain, float temperature) {
  static std::map<std::pair<std::string, float>, Counts> counts;
  Counts& found = counts[{plain.model, temperature}];
  if (found[0].empty()) found = count(plain, temperature, 1'000'000);
  return found;
}

TEST(Rejection, ComparesSamplesThatDiffer) {
  Counts other = count(base(), 5, 2'000'000);
  EXPECT_LT(largest_distance(exact_counts(base(), 5), other), 5);
  for (auto& [tokens, n] : other[0]) n = n * (5 + tokens[0] % 2) / 5;
  EXPECT_GT(largest_distance(exact_counts(base(), 5), other), 5);
}

TEST_P(RejectionDrafters, KeepTheDistribution) {
  const float temperature = GetParam().temperature;
  EXPECT_LT(largest_distance(exact_counts(plain_options(), temperature), count(options_, temperature, 1)), 5);
}

TEST_P(RejectionDrafters, ChangeNoGreedyAnswer) {
  std::vector<Request> all;
  for (unsigned i = 0; i < 8; ++i) {
    all.push_back(seeded_request(random_tokens(i, 5 + static_cast<int>(5 * i)), 30));
    all.back().sampling.temperature = 0;
    if (i % 2 == 1) continue;
    all.back().sampling.temperature = 0.9f;  // Mirostat's draws are not judged
    all.back().sampling.mirostat = 2;
  }
  Engine engine(options_), plain(plain_options());
  const auto found = answers_together(engine, all);
  for (size_t i = 0; i < all.size(); ++i) expect_same(answer(plain, all[i]), found[i][0], std::to_string(i));
  EXPECT_GT(engine.stats().drafted_tokens, 0u);
}

// What an answer says of its tokens is what the target thinks of them.
TEST_P(RejectionDrafters, GiveTheTargetsLogprobs) {
  Engine engine(options_), plain(plain_options());
  for (unsigned i = 0; i < 4; ++i) {
    const Request r = seeded_request(random_tokens(i, 10), 30);
    const Answer a = answer(engine, r);
    Request scored = r;
    scored.prompt.insert(scored.prompt.end(), a.tokens.begin(), a.tokens.end());
    scored.sampling.prompt_logprobs = 0;
    scored.sampling.max_tokens = 1;
    const Answer b = answer(plain, scored);
    ASSERT_EQ(b.prompt.size(), 40u);
    for (size_t t = 0; t < a.tokens.size(); ++t) EXPECT_EQ(a.logprobs[t], b.prompt[10 + t].logprob) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RejectionDrafters,
                         ::testing::Values(Drafter{"draft", 5,
                                                   [](EngineOptions& o) {
                                                     o.speculative = Speculation::kDraft;
                                                     o.draft_model = golden("models/mistral");
                                                   }},
                                           Drafter{"early_exit", 5,
                                                   [](EngineOptions& o) {
                                                     o.speculative = Speculation::kEarlyExit;
                                                     o.early_exit_layers = 1;
                                                   }},
                                           Drafter{"eagle", 15,
                                                   [](EngineOptions& o) {
                                                     o.speculative = Speculation::kEagle;
                                                     o.eagle_head = golden("drafters/eagle");
                                                   }},
                                           Drafter{"mtp", 15,
                                                   [](EngineOptions& o) { testing::use_mtp(o, "deepseek_v3"); }},
                                           Drafter{"medusa", 15,
                                                   [](EngineOptions& o) {
                                                     o.speculative = Speculation::kMedusa;
                                                     o.medusa_heads = golden("drafters/medusa");
                                                   }}),
                         [](const auto& drafter) { return drafter.param.name; });

TEST(Rejection, AcceptsEveryDraftOfTheTargetItself) {
  EngineOptions o = base();
  o.speculative = Speculation::kDraft;
  o.draft_model = o.model;
  o.speculate_always = true;
  o.num_speculative_tokens = 3;
  Request r = seeded_request(random_tokens(9, 40), 41);
  r.sampling.temperature = 0.9f;
  r.sampling.top_p = 0.9f;
  const auto accepted = [&](DraftAcceptance rule) {
    o.speculative_acceptance = rule;
    Engine engine(o);
    const Usage usage = answer(engine, r).last.usage;
    EXPECT_GT(usage.drafted_tokens, 0);
    return std::pair{usage.accepted_tokens, usage.drafted_tokens};
  };
  EXPECT_EQ(accepted(DraftAcceptance::kRejection), std::pair(30, 30));
  const auto [right, all] = accepted(DraftAcceptance::kExact);
  EXPECT_LT(right, all * 3 / 4);
}

TEST(Rejection, LeavesDraftersThatLookAtTokensExact) {
  EngineOptions o = base();
  o.speculative = Speculation::kNgram;
  o.speculative_acceptance = DraftAcceptance::kRejection;
  o.speculate_always = true;
  TokenIds prompt = random_tokens(1, 10);
  prompt.insert(prompt.end(), prompt.begin(), prompt.begin() + 10);
  Request r = seeded_request(prompt, 40);
  r.sampling.temperature = 0.2f;
  Engine engine(o), plain(base());
  expect_same(answer(plain, r), answer(engine, r));
  EXPECT_GT(engine.stats().drafted_tokens, 0u);
}

}  // namespace
}  // namespace quire
