// A model with a sliding window: memory does not grow with the answer, prefixes are found, and no answer changes.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::answer;
using testing::Answers;
using testing::expect_same;
using testing::kTinyPageBytes;
using testing::random_tokens;

constexpr int kWindow = 50, kContext = 2048;

EngineOptions window_options() {
  EngineOptions o = testing::tiny_options();
  o.model = testing::tiny_model(TensorType::Q4_1, kContext, kWindow);
  return o;
}

TEST(Windows, KeepMemoryFlatOverALongAnswer) {
  EngineOptions o = window_options();
  o.max_num_seqs = 1;
  o.kv_cache_bytes = 5 * kTinyPageBytes;  // 50 tokens lie in 5 pages at most
  o.prefix_cache = false;
  Engine engine(o);
  EXPECT_EQ(engine.info().max_model_len, kContext);
  EXPECT_EQ(engine.info().kv_pages, 5);
  EXPECT_EQ(engine.info().kv_bytes_per_token, 0u);
  EXPECT_EQ(engine.info().kv_bytes_per_sequence, 5 * kTinyPageBytes);
  const Answer small = answer(engine, seeded_request(random_tokens(1, 300), 1000));
  EXPECT_EQ(small.last.finish, FinishReason::kLength);
  EXPECT_EQ(engine.stats().preemptions, 0u);
  Engine large(window_options());
  expect_same(answer(large, seeded_request(random_tokens(1, 300), 1000)), small);
}

TEST(Windows, HitPrefixesAtPages) {
  Engine engine(window_options());
  const TokenIds base = random_tokens(2, 150);
  EngineOptions o = window_options();
  o.prefix_cache = false;
  Engine without(o);
  answer(engine, seeded_request(base, 100));
  for (const int common : {0, 15, 16, 71, 100, 149}) {
    TokenIds other = random_tokens(3, 170);
    std::copy_n(base.begin(), common, other.begin());
    other[static_cast<size_t>(common)] = (base[static_cast<size_t>(common)] + 1) % 256;
    const Answer a = answer(engine, seeded_request(other));
    EXPECT_EQ(a.last.usage.cached_tokens, common / 16 * 16);
    expect_same(a, answer(without, seeded_request(other)));
  }
}

TEST(Windows, SurviveARestartOnDisk) {
  const auto folder = std::filesystem::temp_directory_path() / ("quire-windows-" + std::to_string(::getpid()));
  EngineOptions o = window_options();
  o.cache_dir = folder.string();
  const Request r = seeded_request(random_tokens(8, 300));
  Answer cold;
  {
    Engine engine(o);
    cold = answer(engine, r);
  }
  {
    Engine engine(o);
    answer(engine, seeded_request(random_tokens(9, 20)));
    const Answer warm = answer(engine, r);
    EXPECT_EQ(warm.last.usage.cached_tokens, 288);
    EXPECT_GT(engine.stats().pages_loaded, 0u);
    expect_same(warm, cold);
  }
  std::filesystem::remove_all(folder);
}

// With and without prefixes, chunks, a cache, continuous batches; with prompts at the limits.
TEST(Windows, ChangeNoAnswerInAnyMode) {
  constexpr int kShort = 160;
  std::mt19937 random(2);
  std::vector<Request> requests;
  for (unsigned i = 0; i < 24; ++i) {
    constexpr int kLengths[] = {1, 15, 16, 17, 49, 50, 51, 64, 100, kShort - 1};
    Request r = seeded_request(random_tokens(random() % 2, kLengths[random() % std::size(kLengths)]),
                               1 + static_cast<int>(random() % 24));
    if (random() % 3 == 0) r.prompt.back() = static_cast<TokenId>(i);
    r.sampling.seed = i;
    r.sampling.n = random() % 6 == 0 ? 3 : 1;
    if (random() % 6 == 0) r.sampling.prompt_logprobs = 1;
    requests.push_back(std::move(r));
  }
  EngineOptions plain = window_options();
  plain.prefix_cache = false;
  plain.max_model_len = kShort;
  std::vector<Answers> alone;
  {
    Engine engine(plain);
    for (const Request& r : requests) alone.push_back(testing::answers(engine, r));
  }
  for (unsigned mode = 0; mode < 12; ++mode) {
    EngineOptions o = plain;
    o.prefix_cache = mode % 2 == 0;
    o.chunked_prefill = mode / 2 % 2 == 0;
    o.kv_cache = mode / 4 != 1;
    o.scheduler = mode / 4 == 2 ? SchedulerKind::kStatic : SchedulerKind::kContinuous;
    o.max_num_seqs = 6;
    o.max_num_batched_tokens = 20;
    o.kv_cache_bytes = kShort / 16 * kTinyPageBytes;
    Engine engine(o);
    const std::vector<Answers> all = testing::answers_together(engine, requests);
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t choice = 0; choice < all[i].size(); ++choice)
        expect_same(alone[i][choice], all[i][choice],
                    "mode " + std::to_string(mode) + ", request " + std::to_string(i));
    }
  }
}

// Preempted, forked, evicted and read back from host memory.
TEST(Windows, ChangeNoAnswerUnderLoad) {
  std::mt19937 random(1);
  std::vector<Request> requests;
  for (unsigned i = 0; i < 120; ++i) {
    TokenIds prompt = random_tokens(random() % 4, static_cast<int>(random() % (i % 2 ? 150 : 10)));
    const TokenIds own = random_tokens(1000 + i, 1 + static_cast<int>(random() % 60));
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(seeded_request(std::move(prompt), 1 + static_cast<int>(random() % 40)));
    requests.back().sampling.seed = i;
    requests.back().sampling.n = random() % 10 == 0 ? 4 : 1;
  }
  std::vector<Answers> alone;
  {
    EngineOptions o = window_options();
    o.prefix_cache = false;
    Engine engine(o);
    for (const Request& r : requests) alone.push_back(testing::answers(engine, r));
  }
  EngineOptions o = window_options();
  o.max_model_len = 320;
  o.max_num_batched_tokens = 48;
  o.kv_cache_bytes = 12 * kTinyPageBytes;
  o.host_cache_bytes = size_t{1} << 18;
  testing::expect_solo_answers_under_pressure(o, requests, alone);
}

}  // namespace
}  // namespace quire
