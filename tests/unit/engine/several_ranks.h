// What tests of ranks, stages and processes compare: options of a small engine, requests, and their answers.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "engine/step/executor.h"
#include "quire/engine.h"
#include "unit/engine/drafters.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire::testing {

inline EngineOptions small_options(std::string model) {
  EngineOptions o;
  ignore_time(o);
  o.model = std::move(model);
  o.threads = 2;
  o.max_num_seqs = 4;
  o.max_num_batched_tokens = 64;
  o.max_model_len = 128;
  return o;
}

inline std::vector<std::byte> bytes_at(Executor& executor, const CachePlace& place) {
  std::vector<std::byte> bytes(place.size);
  executor.read(place, bytes);
  return bytes;
}

// Greedy and sampled ones, one with two answers, and one with log-probabilities of its prompt.
inline std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 6; ++i) {
    Request r = seeded_request(random_tokens(i % 3, 20 + 9 * static_cast<int>(i)), 12);
    r.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    r.sampling.n = i == 4 ? 2 : 1;
    if (i == 5) r.sampling.prompt_logprobs = 0;
    requests.push_back(std::move(r));
  }
  return requests;
}

// The engines' answers to mixed_requests().
inline void expect_same_answers(Engine& one, Engine& several, const std::string& what) {
  const auto expected = answers_together(one, mixed_requests()), got = answers_together(several, mixed_requests());
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t choice = 0; choice < expected[i].size(); ++choice)
      expect_same(expected[i][choice], got[i][choice], what + ", request " + std::to_string(i));
  }
}

inline void expect_same_answers(const EngineOptions& a, const EngineOptions& b, const std::string& what) {
  Engine one(a), several(b);
  expect_same_answers(one, several, what);
}

// Together, alone after a prefix hit, and while sequences are preempted.
inline void expect_the_same_alone_and_together(EngineOptions o, const std::string& what) {
  std::vector<Request> requests = mixed_requests();
  requests.erase(requests.begin(), requests.begin() + 2);
  Engine engine(o);
  const std::vector<Answers> together = answers_together(engine, requests);
  int cached = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answers alone = answers(engine, requests[i]);
    for (size_t choice = 0; choice < alone.size(); ++choice) {
      expect_same(together[i][choice], alone[choice], what + std::to_string(i));
      cached += alone[choice].last.usage.cached_tokens;
    }
  }
  EXPECT_GT(cached, 0) << what;

  std::vector<Request> long_ones;
  for (unsigned i = 0; i < 3; ++i) long_ones.push_back(seeded_request(random_tokens(i, 30), 40));
  std::vector<Answer> expected;
  for (const Request& request : long_ones) expected.push_back(answer(engine, request));
  o.kv_cache_bytes = cache_of(o, 1);
  Engine scarce(o);
  const std::vector<Answers> preempted = answers_together(scarce, long_ones);
  EXPECT_GT(scarce.stats().preemptions, 0u) << what;
  for (size_t i = 0; i < long_ones.size(); ++i) expect_same(expected[i], preempted[i][0], what + std::to_string(i));
}

// undrafted_options(), with a change that sets a drafter, which then proposes at every step.
template <class Change>
EngineOptions drafted_options(const Change& change) {
  EngineOptions o = undrafted_options(4, 128);
  o.speculate_always = true;
  change(o);
  return o;
}

// With each kind of drafter.
inline std::vector<EngineOptions> options_of_all_drafters() {
  return {
      drafted_options([](EngineOptions& o) { o.speculative = Speculation::kNgram; }),
      drafted_options([](EngineOptions& o) { o.speculative = Speculation::kEarlyExit; }),
      drafted_options([](EngineOptions& o) {
        o.speculative = Speculation::kDraft;
        o.draft_model = o.model;
      }),
      drafted_options([](EngineOptions& o) {
        o.speculative = Speculation::kEagle;
        o.eagle_head = golden("drafters/eagle");
      }),
      drafted_options([](EngineOptions& o) {
        o.speculative = Speculation::kMedusa;
        o.medusa_heads = golden("drafters/medusa");
      }),
      drafted_options([](EngineOptions& o) { use_mtp(o, "deepseek_v3"); }),
  };
}

}  // namespace quire::testing
