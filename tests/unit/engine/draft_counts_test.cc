// What the engine counts of speculative decoding.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "unit/engine/tiny_engine.h"

namespace quire::testing {
namespace {

constexpr int kDepth = 4;

EngineOptions drafting_options() {
  EngineOptions o = tiny_options();
  o.speculative = Speculation::kNgram;
  o.speculate_always = true;
  o.num_speculative_tokens = kDepth;
  o.prefix_cache = false;
  return o;
}

// A prompt that repeats itself, so that there are drafts; random weights soon repeat their own tokens, too.
Request repetitive_request(unsigned seed) {
  Request r{.prompt = random_tokens(seed, 20), .sampling = {}};
  r.prompt.insert(r.prompt.end(), r.prompt.begin(), r.prompt.begin() + 20);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = 60;
  r.sampling.ignore_eos = true;
  return r;
}

// The counters once they include the last step of `requests` requests.
EngineStats settled(const Engine& engine, uint64_t requests) {
  while (engine.stats().finished_requests < requests) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return engine.stats();
}

template <class Counts>
uint64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

TEST(DraftCounts, AddUpToTheTokens) {
  Engine engine(drafting_options());
  int tokens = 0;
  for (unsigned i = 0; i < 3; ++i) tokens += static_cast<int>(answer(engine, repetitive_request(i)).tokens.size());
  const EngineStats s = settled(engine, 3);
  ASSERT_EQ(s.drafters.size(), 1u);
  const DrafterStats& d = s.drafters[0];
  EXPECT_EQ(d.name, "ngram");
  EXPECT_EQ(d.errors, 0u);
  EXPECT_GT(s.accepted_tokens, 0u);
  EXPECT_EQ(sum(d.drafted), s.drafted_tokens);
  EXPECT_EQ(sum(d.accepted), s.accepted_tokens);
  EXPECT_LE(d.complete, d.accepted[0]);
  EXPECT_GT(d.complete, 0u);
  for (size_t i = 0; i < d.drafted.size(); ++i) {
    EXPECT_LE(d.accepted[i], d.drafted[i]) << i;
    EXPECT_LE(d.drafted[i], i < kDepth ? d.drafted[0] : 0) << i;
  }
  EXPECT_GT(d.seconds, 0);
  EXPECT_EQ(s.verify_steps, d.drafted[0]) << "one sequence at a time";
  EXPECT_GT(s.verify_seconds, 0);
  EXPECT_LE(s.verify_seconds, s.decode_seconds);
  EXPECT_EQ(s.decode_tokens, static_cast<uint64_t>(tokens) - 3) << "all but the first of each answer";
  EXPECT_EQ(s.decode_sequences, s.decode_steps);
  EXPECT_EQ(s.decode_tokens, s.decode_steps + s.accepted_tokens);
  EXPECT_EQ(sum(s.decode_steps_by_rows), s.decode_steps);
  uint64_t rows = 0;
  for (size_t i = 0; i < s.decode_steps_by_rows.size(); ++i) rows += i * s.decode_steps_by_rows[i];
  EXPECT_EQ(rows, s.decode_steps + s.drafted_tokens);
}

TEST(DraftCounts, StayZeroForRequestsThatDoNotSpeculate) {
  Engine engine(drafting_options());
  Request plain = repetitive_request(1);
  const Answer expected = answer(engine, plain);
  const EngineStats before = settled(engine, 1);
  ASSERT_GT(before.drafted_tokens, 0u);
  plain.speculate = false;
  const Answer off = answer(engine, plain);
  const EngineStats after = settled(engine, 2);
  expect_same(expected, off);
  EXPECT_EQ(off.last.usage.drafted_tokens, 0);
  EXPECT_EQ(after.drafted_tokens, before.drafted_tokens);
  EXPECT_EQ(after.verify_steps, before.verify_steps);
  EXPECT_EQ(after.drafters[0].seconds, before.drafters[0].seconds);
  EXPECT_EQ(after.decode_steps - before.decode_steps, 59u);
}

TEST(DraftCounts, OfOneRequestDoNotStopTheOthers) {
  Engine engine(drafting_options());
  std::vector<Request> requests{repetitive_request(1), repetitive_request(1)};
  requests[0].speculate = false;
  const std::vector<Answers> both = answers_together(engine, requests);
  expect_same(both[0][0], both[1][0]);
  EXPECT_EQ(both[0][0].last.usage.drafted_tokens, 0);
  EXPECT_GT(both[1][0].last.usage.drafted_tokens, 0);
}

}  // namespace
}  // namespace quire::testing
