// An engine over a tiny model, requests to it and their answers.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "quire/engine.h"
#include "unit/engine/tiny_model.h"

namespace quire::testing {

// Of tiny_model(): 2 layers, 2 KV heads, 16 tokens, 32 dimensions, keys and values of bf16.
inline constexpr size_t kTinyPageBytes = size_t{2} * 2 * 16 * 32 * 2 * 2;

// Schedules by rows alone. With the default targets, a slow machine admits fewer prompts to a step.
inline void ignore_time(EngineOptions& o) {
  o.tpot_target = kMaxTpotTarget;
  o.ttft_target = 0;
}

inline EngineOptions tiny_options() {
  EngineOptions o;
  ignore_time(o);
  o.model = tiny_model();
  o.threads = 2;
  o.max_num_seqs = 16;
  return o;
}

inline TokenIds random_tokens(unsigned seed, int count) {
  std::mt19937 random(seed);
  TokenIds ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(random() % 256));
  return ids;
}

struct Answer {
  TokenIds tokens;
  std::vector<float> logprobs;
  std::string text;
  std::vector<OutputToken> prompt;
  Output last;
  int ends = 0;

  void add(const Output& out) {
    for (const OutputToken& t : out.tokens) tokens.push_back(t.id), logprobs.push_back(t.logprob);
    text += out.text;
    if (!out.prompt_logprobs.empty()) prompt = out.prompt_logprobs;
    last = out;
    ends += out.finish != FinishReason::kNone;
  }
};
using Answers = std::vector<Answer>;  // by choice

inline Answers answers(Engine& engine, const Request& r) {
  Answers all(static_cast<size_t>(r.sampling.n));
  engine.generate(r, [&](const Output& out) { all[static_cast<size_t>(out.choice)].add(out); });
  return all;
}
inline Answer answer(Engine& engine, const Request& r) { return answers(engine, r)[0]; }

// Keeps the engine within the output of a request of its own until the result is counted down. What is submitted meanwhile starts
// in one step, so that the steps depend on the requests alone.
inline std::shared_ptr<std::latch> hold(Engine& engine) {
  auto held = std::make_shared<std::latch>(1), let_go = std::make_shared<std::latch>(1);
  Request r;
  r.prompt = {1};
  r.sampling.max_tokens = 1;
  engine.submit(r, [=](const Output& out) {
    if (out.finish == FinishReason::kNone) return;
    held->count_down();
    let_go->wait();
  });
  held->wait();
  return let_go;
}

// Submits all requests, calls submitted(i, id) after each, and waits until all choices have ended. Without `submitted`, all start
// in one step.
inline std::vector<Answers> answers_together(Engine& engine, const std::vector<Request>& requests,
                                             const std::function<void(size_t, RequestId)>& submitted = {}) {
  std::vector<Answers> all;
  int left = 0;
  for (const Request& r : requests) {
    all.emplace_back(static_cast<size_t>(r.sampling.n));
    left += r.sampling.n;
  }
  std::mutex mutex;
  std::condition_variable done;
  const auto let_go = submitted ? nullptr : hold(engine);
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestId id = engine.submit(requests[i], [&, i](const Output& out) {
      all[i][static_cast<size_t>(out.choice)].add(out);
      if (out.finish == FinishReason::kNone) return;
      const std::lock_guard lock(mutex);
      if (--left == 0) done.notify_one();
    });
    if (submitted) submitted(i, id);
  }
  if (let_go) let_go->count_down();
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return left == 0; });
  return all;
}

// To the bit.
inline void expect_same(const Answer& a, const Answer& b, const std::string& what = {}) {
  EXPECT_EQ(a.tokens, b.tokens) << what;
  EXPECT_EQ(a.text, b.text) << what;
  EXPECT_EQ(a.logprobs, b.logprobs) << what;
  EXPECT_EQ(a.last.finish, b.last.finish) << what;
  EXPECT_EQ(b.ends, 1) << what;
}

// Submits the requests together. alone: their answers with the same options, one after the other. The options' cache must be so
// small that requests are preempted and shared pages evicted.
inline void expect_solo_answers_under_pressure(const EngineOptions& options, const std::vector<Request>& requests,
                                               const std::vector<Answers>& alone) {
  Engine engine(options);
  const std::vector<Answers> together = answers_together(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t choice = 0; choice < alone[i].size(); ++choice)
      expect_same(alone[i][choice], together[i][choice], "request " + std::to_string(i));
  }
  const EngineStats stats = engine.stats();
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_GT(stats.prefix_hit_tokens, 0u);
  EXPECT_GT(stats.pages_evicted, 0u);
}

}  // namespace quire::testing
