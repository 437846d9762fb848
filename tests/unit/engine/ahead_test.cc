// Steps that are launched while the last one runs: the answers are those of steps one after the other, whatever ends, arrives or fails
// meanwhile.

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine_loop.h"
#include "unit/engine/fenced_engine.h"
#include "unit/engine/loop_answers.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::Answers;
using testing::expect_same;
using testing::random_tokens;
using testing::tiny_options;

Request short_request(unsigned seed, int prompt, int tokens) {
  Request r;
  r.prompt = random_tokens(seed, prompt);
  r.sampling.seed = seed;
  r.sampling.max_tokens = tokens;
  r.sampling.temperature = seed % 3 == 0 ? 0.0f : 1.0f;
  return r;
}

// Answers that end by their number of tokens, by a token or by a text; some with parameters that need more than a pick.
std::vector<Request> requests_of_many_ends(int count) {
  std::vector<Request> all;
  std::mt19937 random(5);
  for (int i = 0; i < count; ++i) {
    Request& r = all.emplace_back(short_request(static_cast<unsigned>(i), 2 + static_cast<int>(random() % 40),
                                                1 + static_cast<int>(random() % 30)));
    SamplingParams& s = r.sampling;
    if (i % 4 == 1) s.top_p = 0.8f;
    if (i % 5 == 2) s.top_k = 12;
    if (i % 6 == 1) s.stop_token_ids = random_tokens(static_cast<unsigned>(i), 20);
    if (i % 6 == 4) s.stop = {"e", "9"};
    if (i % 11 == 5) s.n = 2;
    if (i % 13 == 6) s.min_tokens = 3;
    if (i % 17 == 7) s.frequency_penalty = 0.5f;
    if (i % 19 == 8) s.logprobs = 1;
  }
  return all;
}

uint64_t answers_and_ahead_steps(EngineOptions o, bool ahead, const std::vector<Request>& requests,
                                 std::vector<Answers>& answers) {
  o.run_ahead = ahead;
  Engine engine(o);
  answers = testing::answers_together(engine, requests);
  return engine.stats().ahead_steps;
}

// Returns the steps that were launched ahead.
uint64_t expect_same_ahead(const EngineOptions& o, const std::vector<Request>& requests) {
  std::vector<Answers> one_by_one, ahead;
  EXPECT_EQ(answers_and_ahead_steps(o, false, requests, one_by_one), 0u);
  const uint64_t steps = answers_and_ahead_steps(o, true, requests, ahead);
  for (size_t i = 0; i < requests.size(); ++i)
    for (size_t choice = 0; choice < ahead[i].size(); ++choice)
      expect_same(one_by_one[i][choice], ahead[i][choice], "request " + std::to_string(i));
  return steps;
}

TEST(Ahead, ChangesNoAnswer) {
  const testing::FencedEngines fenced;
  EngineOptions o = tiny_options();
  o.max_num_seqs = 4;
  EXPECT_GT(expect_same_ahead(o, requests_of_many_ends(60)), 10u);
  o.max_num_seqs = 16;
  o.prefix_cache = false;
  expect_same_ahead(o, requests_of_many_ends(16));
}

// Nothing but the first steps, with the prompts, waits for the host: of 20 steps, or a few more.
TEST(Ahead, AllStepsAfterThePromptsMayBe) {
  const testing::FencedEngines fenced;
  std::vector<Request> requests;
  for (unsigned i = 0; i < 6; ++i) requests.push_back(short_request(i, 5, 20));
  for (Request& r : requests) r.sampling.ignore_eos = true;
  EXPECT_GE(expect_same_ahead(tiny_options(), requests), 15u);
}

// So hot that the best tokens never have half of the weight.
TEST(Ahead, RowsThatAreNeededWholeAreComputedAgain) {
  const testing::FencedEngines fenced;
  std::vector<Request> requests;
  for (unsigned i = 0; i < 5; ++i) requests.push_back(short_request(3 * i + 1, 14, 10));
  for (Request& r : requests) r.sampling.ignore_eos = true;
  for (const size_t i : {1, 3}) {
    requests[i].sampling.temperature = 100;
    requests[i].sampling.top_p = 0.9f;
  }
  EXPECT_GT(expect_same_ahead(tiny_options(), requests), 2u);
}

TEST(Ahead, LittleMemoryChangesNoAnswer) {
  const testing::FencedEngines fenced;
  EngineOptions o = tiny_options();
  o.max_num_seqs = 5;
  o.max_model_len = 128;
  o.kv_cache_bytes = 10 * testing::kTinyPageBytes;
  expect_same_ahead(o, requests_of_many_ends(30));
}

TEST(Ahead, AnEngineStopsWhileAStepRuns) {
  const testing::FencedEngines fenced;
  std::atomic<int> tokens = 0, ends = 0;
  {
    Engine engine(tiny_options());
    for (unsigned i = 0; i < 4; ++i) {
      Request r = short_request(i, 5, 400);
      r.sampling.ignore_eos = true;
      engine.submit(r, [&](const Output& out) {
        tokens += static_cast<int>(out.tokens.size());
        ends += out.finish == FinishReason::kCancelled;
      });
    }
    while (tokens < 40) std::this_thread::yield();
  }
  EXPECT_EQ(ends, 4);
}

// A request that is given up, and one that arrives, while the next step runs already.
TEST(Ahead, RequestsComeAndGoBetweenSteps) {
  const testing::FencedEngines fenced;
  LoadedModel model(tiny_options());
  EngineLoop loop(model);
  std::vector<Answer> answers(3);
  const auto long_request = [](size_t i, int tokens) {
    Request r = short_request(static_cast<unsigned>(i), 6, tokens);
    r.sampling.ignore_eos = true;
    return r;
  };
  const auto add = [&](size_t i, int tokens) {
    const auto state = prepare(
        long_request(i, tokens), [&answers, i](const Output& out) { answers[i].add(out); }, {},
        model.info.max_model_len);
    state->id = RequestId{i};
    Sequences arrived;
    arrived.emplace_back(state, 0, std::move(state->prompt), nullptr);
    loop.add(std::move(arrived));
  };
  add(0, 12);
  add(1, 30);
  for (int i = 0; i < 6; ++i) loop.step();
  std::vector<RequestId> ids{RequestId{1}};
  loop.cancel(ids);
  loop.step();
  add(2, 4);
  while (!loop.idle()) loop.step();
  EngineStats stats;
  loop.write_stats(stats);
  EXPECT_GT(stats.ahead_steps, 8u);
  EXPECT_EQ(stats.kv_pages_used, 0);
  EXPECT_EQ(stats.finished_requests, 3u);
  EXPECT_EQ(answers[0].tokens.size(), 12u);
  EXPECT_EQ(answers[1].last.finish, FinishReason::kCancelled);
  EXPECT_EQ(answers[2].tokens.size(), 4u);
  for (const size_t i : {0, 2}) {
    LoadedModel plain(tiny_options());
    EngineLoop alone(plain);
    const Answer expected = testing::loop_answers(alone, plain, {long_request(i, i == 0 ? 12 : 4)})[0];
    expect_same(expected, answers[i], "request " + std::to_string(i));
  }
}

}  // namespace
}  // namespace quire
