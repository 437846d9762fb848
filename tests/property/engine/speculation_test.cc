// Speculative decoding changes no bit of an answer: every drafter, in every shape of the engine, under random load.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "property/engine/random.h"
#include "unit/engine/drafters.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::Answers;
using testing::answers;
using testing::answers_together;
using testing::cache_of;
using testing::Choice;
using testing::golden;
using testing::random_tokens;

bool one_in(Random& random, unsigned n) { return random() % n == 0; }

// ---- 300 prompts

EngineOptions plain_options() { return testing::undrafted_options(16, 96); }

// Half of the prompts repeat themselves. Each is asked greedily, at a temperature with top-p, and with penalties.
std::vector<Request> three_hundred_prompts() {
  std::vector<Request> all;
  for (unsigned i = 0; i < 300; ++i) {
    Random random(i);
    TokenIds prompt = random_tokens(i, between(random, 1, 40));
    if (i % 2 == 0) {
      prompt.resize(std::min<size_t>(prompt.size(), 12));
      const TokenIds motif = prompt;
      for (int copies = between(random, 1, 3); copies > 0; --copies)
        prompt.insert(prompt.end(), motif.begin(), motif.end());
    }
    Request r = seeded_request(prompt, i % 4 == 0 ? 48 : between(random, 4, 24));
    r.sampling.seed = i;
    r.sampling.temperature = 0;
    all.push_back(r);
    r.sampling.temperature = 0.8f;
    r.sampling.top_p = 0.5f;
    all.push_back(r);
    r.sampling.temperature = 0.4f;
    r.sampling.top_p = 1;
    r.sampling.presence_penalty = 0.4f;
    r.sampling.frequency_penalty = 0.2f;
    r.sampling.repetition_penalty = 1.1f;
    all.push_back(std::move(r));
  }
  return all;
}

const std::vector<Request>& requests() {
  static const auto all = three_hundred_prompts();
  return all;
}
const std::vector<Answers>& expected(const std::string& model) {
  static std::map<std::string, std::vector<Answers>> known;
  if (const auto all = known.find(model); all != known.end()) return all->second;
  EngineOptions o = plain_options();
  o.model = model;
  o.prefix_cache = false;
  Engine engine(o);
  return known.emplace(model, answers_together(engine, requests())).first->second;
}

class Speculating : public ::testing::TestWithParam<std::tuple<Choice, Choice>> {};

TEST_P(Speculating, ChangesNoBitOf300Prompts) {
  const auto& [drafter, shape] = GetParam();
  EngineOptions o = plain_options();
  o.speculate_always = true;
  o.num_speculative_tokens = 3;
  drafter.change(o);
  shape.change(o);
  const std::vector<Answers>& wanted = expected(o.model);
  Engine engine(o);
  const auto found = answers_together(engine, requests());
  for (size_t i = 0; i < found.size(); ++i) {
    const Answer &a = wanted[i][0], &b = found[i][0];
    ASSERT_EQ(a.tokens, b.tokens) << "request " << i;
    ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
    ASSERT_EQ(std::memcmp(a.logprobs.data(), b.logprobs.data(), a.logprobs.size() * sizeof(float)), 0)
        << "request " << i;
    ASSERT_EQ(a.last.finish, b.last.finish);
  }
  const EngineStats stats = engine.stats();
  if (o.speculate_always) {
    EXPECT_GT(stats.drafted_tokens, 1000u);
    EXPECT_GT(stats.accepted_tokens, 20u);
  }
  if (shape.name == "preempted") {
    EXPECT_GT(stats.preemptions, 10u);
  }
}

const Choice kDrafterChoices[] = {
    {"ngram", [](EngineOptions& o) { o.speculative = Speculation::kNgram; }},
    {"recent", [](EngineOptions& o) { o.speculative = Speculation::kRecent; }},
    {"lookahead", [](EngineOptions& o) { o.speculative = Speculation::kLookahead; }},
    {"draft",
     [](EngineOptions& o) {
       o.speculative = Speculation::kDraft;
       o.draft_model = golden("models/llama");
     }},
    {"early_exit",
     [](EngineOptions& o) {
       o.speculative = Speculation::kEarlyExit;
       o.early_exit_layers = 2;
     }},
    {"medusa",
     [](EngineOptions& o) {
       o.speculative = Speculation::kMedusa;
       o.medusa_heads = golden("drafters/medusa");
     }},
    {"eagle",
     [](EngineOptions& o) {
       o.speculative = Speculation::kEagle;
       o.eagle_head = golden("drafters/eagle");
     }},
    {"mtp_latent", [](EngineOptions& o) { testing::use_mtp(o, "deepseek_v3"); }},
    {"mtp_hybrid", [](EngineOptions& o) { testing::use_mtp(o, "qwen3_next"); }},
    {"auto",
     [](EngineOptions& o) {
       o.speculative = Speculation::kAuto;
       o.draft_model = golden("models/llama");
       o.speculate_always = false;
     }},
};
const Choice kShapes[] = {
    {"batched", [](EngineOptions&) {}},
    {"chunked",
     [](EngineOptions& o) {
       o.max_num_seqs = 6;
       o.max_num_batched_tokens = 11;
     }},
    {"preempted", [](EngineOptions& o) { o.kv_cache_bytes = cache_of(o, 1); }},
};
INSTANTIATE_TEST_SUITE_P(All, Speculating,
                         ::testing::Combine(::testing::ValuesIn(kDrafterChoices), ::testing::ValuesIn(kShapes)),
                         [](const auto& p) { return std::get<0>(p.param).name + "_" + std::get<1>(p.param).name; });

// ---- 500 requests under random load

EngineOptions loaded_options() {
  EngineOptions o = testing::tiny_options();
  o.max_num_seqs = 5;
  o.max_model_len = 160;
  return o;
}

// Constraints belong to an engine.
Request random_request(const Engine& engine, unsigned seed) {
  using Kind = ConstraintSource::Kind;
  static const ConstraintSource kConstraints[] = {
      {.kind = Kind::kRegex, .text = "(red|green|blue){1,9}[0-9]{5,20}"},
      {.kind = Kind::kChoice, .choices = {"forced from here on", "no"}},
      {.kind = Kind::kGrammar, .text = R"(root ::= ("ab" | "cd"){2,30} "!")"},
      {.kind = Kind::kJsonSchema, .text = R"({"type": "array", "items": {"enum": ["one", "two"]}, "maxItems": 5})"}};
  Random random(seed);
  TokenIds prompt = random_tokens(seed % 40, between(random, 1, 50));  // some share a prefix
  if (one_in(random, 2)) {
    const TokenIds again = prompt;
    prompt.insert(prompt.end(), again.begin(), again.end());
  }
  Request r = seeded_request(std::move(prompt), between(random, 1, 40));
  r.sampling.seed = seed;
  r.sampling.temperature = std::array{0.0f, 0.3f, 0.8f, 1.5f}[random() % 4];
  if (one_in(random, 3)) r.sampling.top_p = 0.7f;
  if (one_in(random, 4)) r.sampling.n = between(random, 2, 4);
  if (one_in(random, 4)) r.sampling.stop = {"a", "\\x"};
  if (one_in(random, 5)) r.sampling.frequency_penalty = 0.5f;
  if (one_in(random, 8)) r.sampling.mirostat = 2;
  if (one_in(random, 4)) {
    r.constraint = engine.compile(kConstraints[random() % std::size(kConstraints)]);
    r.sampling.ignore_eos = false;
    if (one_in(random, 2)) r.sampling.logprobs.reset();  // tokens may be forced
  }
  r.priority = between(random, 0, 1);
  r.tenant = one_in(random, 2) ? "a" : "b";
  r.speculate = !one_in(random, 4);
  return r;
}

// That of an answer that was cut short is a beginning.
void expect_same_or_beginning(const Answer& whole, const Answer& found, const std::string& what) {
  if (found.last.finish != FinishReason::kCancelled) return testing::expect_same(whole, found, what);
  ASSERT_LE(found.tokens.size(), whole.tokens.size()) << what;
  EXPECT_TRUE(std::equal(found.tokens.begin(), found.tokens.end(), whole.tokens.begin())) << what;
  EXPECT_TRUE(std::equal(found.logprobs.begin(), found.logprobs.end(), whole.logprobs.begin())) << what;
}

class SpeculationUnderLoad : public ::testing::TestWithParam<Choice> {};

TEST_P(SpeculationUnderLoad, ChangesNoBitOf100RandomRequests) {
  static unsigned next_seed = 1;
  const unsigned first_seed = std::exchange(next_seed, next_seed + 100);
  EngineOptions alone_options = loaded_options(), o = loaded_options();
  alone_options.max_num_seqs = 1;
  alone_options.prefix_cache = false;
  GetParam().change(o);
  o.kv_cache_bytes = cache_of(o, 2);
  Engine alone(alone_options), engine(o);
  std::vector<Answers> expected;
  std::vector<Request> requests;
  for (unsigned i = 0; i < 100; ++i) {
    Request r = random_request(alone, first_seed + i);
    r.speculate = false;
    expected.push_back(answers(alone, r));
    requests.push_back(random_request(engine, first_seed + i));
  }
  Random random(first_seed);
  int cancelled = 0;
  const auto found = answers_together(engine, requests, [&](size_t, RequestId id) {
    std::this_thread::sleep_for(std::chrono::microseconds(between(random, 0, 2000)));
    if (!one_in(random, 10)) return;
    engine.cancel(id);
    ++cancelled;
  });
  EXPECT_GT(cancelled, 3);
  for (size_t i = 0; i < found.size(); ++i) {
    for (size_t choice = 0; choice < found[i].size(); ++choice)
      expect_same_or_beginning(expected[i][choice], found[i][choice],
                               "seed " + std::to_string(first_seed + i) + ", choice " + std::to_string(choice));
  }
  if (!o.speculate_always) return;
  EXPECT_GT(engine.stats().drafted_tokens, 100u);
  EXPECT_GT(engine.stats().accepted_tokens, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, SpeculationUnderLoad,
                         ::testing::Values(Choice{"ngram",
                                                  [](EngineOptions& o) {
                                                    o.speculative = Speculation::kNgram;
                                                    o.speculate_always = true;
                                                  }},
                                           Choice{"lookahead",
                                                  [](EngineOptions& o) {
                                                    o.speculative = Speculation::kLookahead;
                                                    o.speculate_always = true;
                                                  }},
                                           Choice{"draft",
                                                  [](EngineOptions& o) {
                                                    o.speculative = Speculation::kDraft;
                                                    o.draft_model = testing::tiny_model(TensorType::Q8_0);
                                                    o.speculate_always = true;
                                                  }},
                                           Choice{"early_exit",
                                                  [](EngineOptions& o) {
                                                    o.speculative = Speculation::kEarlyExit;
                                                    o.speculate_always = true;
                                                  }},
                                           Choice{"auto",
                                                  [](EngineOptions& o) {
                                                    o.speculative = Speculation::kAuto;
                                                    o.draft_model = testing::tiny_model(TensorType::Q8_0);
                                                  }}),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace quire
