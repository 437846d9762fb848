// The prefix cache and other features that reuse or skip work: answers stay the same, and shared work is done once.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <thread>

#include "base/error.h"
#include "engine/engine_loop.h"
#include "ops/forwarding.h"
#include "unit/engine/loop_answers.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"
#include "unit/kv/page_samples.h"

namespace quire {
namespace {

using testing::Answer;
using testing::answer;
using testing::Answers;
using testing::answers;
using testing::expect_same;
using testing::kTinyPageBytes;
using testing::random_tokens;
using testing::tiny_options;

// The answer without any cache.
Answer plain(const Request& r) {
  EngineOptions o = tiny_options();
  o.prefix_cache = false;
  Engine engine(o);
  return answer(engine, r);
}

TEST(PrefixCache, FindsPrefixesAtPageBoundariesAndInsidePages) {
  Engine engine(tiny_options());
  const TokenIds base = random_tokens(1, 150);
  EXPECT_EQ(answer(engine, seeded_request(base)).last.usage.cached_tokens, 0);
  // The same again: all but the last token, which must be computed for its logits.
  EXPECT_EQ(answer(engine, seeded_request(base)).last.usage.cached_tokens, 149);
  for (const int common : {0, 3, 15, 16, 17, 64, 71, 144, 149}) {
    TokenIds other = random_tokens(2, 150);
    std::copy_n(base.begin(), common, other.begin());
    other[static_cast<size_t>(common)] = (base[static_cast<size_t>(common)] + 1) % 256;
    const Answer a = answer(engine, seeded_request(other));
    const int found = a.last.usage.cached_tokens;
    EXPECT_GE(found, common / 16 * 16) << common;
    EXPECT_LE(found, common) << common;
    if (common % 16 >= 4) {
      EXPECT_EQ(found, common) << "copied inside a page";
    }
    expect_same(a, plain(seeded_request(other)));
  }
  // The next turn of a conversation finds the answer of the last.
  const Answer first = answer(engine, seeded_request(random_tokens(3, 40), 30));
  TokenIds next = random_tokens(3, 40);
  next.insert(next.end(), first.tokens.begin(), first.tokens.end());
  next.push_back(5);
  const Answer second = answer(engine, seeded_request(next));
  EXPECT_GE(second.last.usage.cached_tokens, 64);
  expect_same(second, plain(seeded_request(next)));
}

TEST(PrefixCache, SaltsAndTenantsKeepPrefixesApart) {
  Engine engine(tiny_options());
  Request r = seeded_request(random_tokens(4, 100));
  r.cache_salt = "a";
  answer(engine, r);
  r.cache_salt = "b";
  EXPECT_EQ(answer(engine, r).last.usage.cached_tokens, 0);
  r.cache_salt = "a";
  EXPECT_EQ(answer(engine, r).last.usage.cached_tokens, 96);
  r.tenant = "another";  // must not learn what others ask
  EXPECT_EQ(answer(engine, r).last.usage.cached_tokens, 0);
  EXPECT_EQ(answer(engine, r).last.usage.cached_tokens, 96);
  EngineOptions o = tiny_options();
  o.prefix_cache = false;
  Engine without(o);
  answer(without, r);
  EXPECT_EQ(answer(without, r).last.usage.cached_tokens, 0);
}

TEST(PrefixCache, ConcurrentRequestsComputeTheirPrefixOnce) {
  EngineOptions o = tiny_options();
  o.max_num_batched_tokens = 32;
  Engine engine(o);
  const TokenIds base = random_tokens(5, 240);
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    TokenIds prompt = base;
    prompt.push_back(static_cast<TokenId>(i));
    requests.push_back(seeded_request(prompt));
  }
  const std::vector<Answers> together = testing::answers_together(engine, requests);
  int cached = 0;
  for (const Answers& a : together) cached += a[0].last.usage.cached_tokens == 240;
  EXPECT_EQ(cached, 7);
  for (size_t i = 0; i < requests.size(); i += 3) expect_same(together[i][0], plain(requests[i]));
}

TEST(PrefixCache, EvictsPagesWhenTheyAreNeeded) {
  EngineOptions o = tiny_options();
  o.max_model_len = 160;
  o.kv_cache_bytes = 14 * kTinyPageBytes;  // 14 pages
  Engine engine(o);
  for (unsigned i = 0; i < 12; ++i) {
    const Request r = seeded_request(random_tokens(100 + i % 4, 60 + static_cast<int>(i)), 40);
    expect_same(answer(engine, r), plain(r));
  }
  EXPECT_GT(engine.stats().pages_evicted, 0u);
}

TEST(PrefixCache, ReadsEvictedPagesBackFromHostMemory) {
  EngineOptions o = tiny_options();
  o.max_model_len = 256;
  o.kv_cache_bytes = 18 * kTinyPageBytes;
  o.host_cache_bytes = size_t{1} << 20;
  Engine engine(o);
  const Request r = seeded_request(random_tokens(6, 200));
  const Answer cold = answer(engine, r);
  for (unsigned i = 0; i < 4; ++i) answer(engine, seeded_request(random_tokens(200 + i, 200)));
  // Whether reading beats computing is measured: ask until the costs are known.
  int found = 0;
  for (int i = 0; i < 5 && found < 192; ++i) {
    const Answer warm = answer(engine, r);
    expect_same(warm, cold);
    found = warm.last.usage.cached_tokens;
    for (unsigned j = 0; j < 4; ++j) answer(engine, seeded_request(random_tokens(300 + j, 200)));
  }
  EXPECT_GE(found, 192);
  EXPECT_GT(engine.stats().pages_loaded, 0u);
}

// The CPU's, which looks at copies of pages.
class PinningBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  bool pin(std::span<std::byte> host) override {
    pinned.push_back(host);
    return true;
  }
  void unpin(std::span<std::byte> host) override {
    EXPECT_EQ(std::erase_if(pinned, [&](std::span<std::byte> p) { return p.data() == host.data(); }), 1u);
  }
  void upload(std::span<const std::byte> from, std::byte* to) override {
    uploads += is_pinned(from);
    ForwardingBackend::upload(from, to);
  }
  void read(std::byte* from, std::span<std::byte> to) override {
    reads += is_pinned(to);
    ForwardingBackend::read(from, to);
  }

  std::vector<std::span<std::byte>> pinned;
  uint64_t uploads = 0, reads = 0;

 private:
  bool is_pinned(std::span<const std::byte> host) const {
    const bool found = std::ranges::any_of(pinned, [&](std::span<const std::byte> p) {
      return host.data() >= p.data() && host.data() + host.size() <= p.data() + p.size();
    });
    EXPECT_TRUE(found);
    return found;
  }
};

TEST(PrefixCache, CopiesPagesFromAndToPinnedMemory) {
  EngineOptions o = tiny_options();
  o.max_model_len = 256;
  o.kv_cache_bytes = 18 * kTinyPageBytes;
  o.host_cache_bytes = 1000 * kTinyPageBytes;
  const TemporaryFolder folder;
  o.cache_dir = folder.path().string();
  const auto runtime = std::make_shared<Runtime>(o);
  runtime->device = std::make_unique<PinningBackend>(runtime->cpu);
  const auto& backend = static_cast<PinningBackend&>(*runtime->device);
  LoadedModel model(o, 0, runtime);
  {
    EngineLoop loop(model);
    EXPECT_EQ(backend.pinned.size(), 2u);  // the host tier, and what the disk is read to
    EngineStats stats;
    for (unsigned i = 0; i < 20; ++i) {  // until the costs of computing and reading are known
      testing::loop_answers(loop, model, std::vector{seeded_request(random_tokens(400 + i % 3, 200))});
      loop.write_stats(stats);
    }
    EXPECT_GT(stats.pages_loaded, 0u);
    EXPECT_EQ(backend.uploads, stats.pages_loaded);
    EXPECT_GT(backend.reads, 0u);
  }
  EXPECT_TRUE(backend.pinned.empty());
}

TEST(PrefixCache, BudgetsMemoryForItsStore) {
  EngineOptions o = tiny_options();
  EXPECT_EQ(Engine(o).info().page_store_bytes, 0u);
  o.host_cache_bytes = 100 * kTinyPageBytes;
  const size_t store = Engine(o).info().page_store_bytes;
  EXPECT_GT(store, 100 * kTinyPageBytes);
  EXPECT_LT(store, 120 * kTinyPageBytes);
  o.kv_cache = false;
  EXPECT_EQ(Engine(o).info().page_store_bytes, 0u);
}

TEST(PrefixCache, SurvivesARestart) {
  const auto folder = std::filesystem::temp_directory_path() / ("quire-prefixes-" + std::to_string(::getpid()));
  EngineOptions o = tiny_options();
  o.cache_dir = folder.string();
  const Request r = seeded_request(random_tokens(8, 300));
  Answer cold;
  std::string usual;  // the default activations: int8, or bf16 with tiles
  {
    Engine engine(o);
    usual = engine.info().activations;
    cold = answer(engine, r);
  }
  {
    Engine engine(o);
    answer(engine, seeded_request(random_tokens(9, 20)));
    const Answer warm = answer(engine, r);
    EXPECT_GE(warm.last.usage.cached_tokens, 288);
    EXPECT_GT(engine.stats().pages_loaded, 0u);
    expect_same(warm, cold);
  }
  {
    EngineOptions other = o;  // pages computed with other roundings are not reused
    other.activations = usual == "bf16" ? "int8" : "bf16";
    Engine engine(other);
    EXPECT_EQ(answer(engine, r).last.usage.cached_tokens, 0);
  }
  std::filesystem::remove_all(folder);
}

// Damaged pages are computed again and do not count as cached.
TEST(PrefixCache, CountsOnlyPagesThatWereRead) {
  const auto folder = std::filesystem::temp_directory_path() / ("quire-damaged-" + std::to_string(::getpid()));
  EngineOptions o = tiny_options();
  o.cache_dir = folder.string();
  const Request r = seeded_request(random_tokens(8, 300));
  Answer cold;
  {
    Engine engine(o);
    cold = answer(engine, r);
  }
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::fstream page(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    page.seekp(100);
    page << "damaged";
  }
  {
    Engine engine(o);
    const Answer again = answer(engine, r);
    EXPECT_EQ(again.last.usage.cached_tokens, 0);
    EXPECT_EQ(engine.stats().prefix_hit_tokens, 0u);
    expect_same(again, cold);
  }
  std::filesystem::remove_all(folder);
}

TEST(PromptLogprobs, DoNotDependOnChunks) {
  Request r = seeded_request(random_tokens(10, 90), 0);
  r.sampling.prompt_logprobs = 3;
  Engine engine(tiny_options());
  const Answer whole = answer(engine, r);
  ASSERT_EQ(whole.prompt.size(), 90u);
  EXPECT_TRUE(whole.tokens.empty());
  EXPECT_EQ(whole.last.finish, FinishReason::kLength);
  for (size_t i = 0; i < 90; ++i) {
    EXPECT_EQ(whole.prompt[i].id, r.prompt[i]);
    EXPECT_EQ(whole.prompt[i].top_logprobs.size(), i == 0 ? 0u : 3u);
  }
  EngineOptions o = tiny_options();
  o.max_num_batched_tokens = o.max_num_seqs = 7;
  Engine narrow(o);
  const Answer chunked = answer(narrow, r);
  for (size_t i = 0; i < 90; ++i) EXPECT_EQ(whole.prompt[i].logprob, chunked.prompt[i].logprob) << i;
  // A token's logprob is the one that generating it reports.
  Request g = seeded_request(TokenIds(r.prompt.begin(), r.prompt.begin() + 50), 1);
  g.sampling.temperature = 0;
  g.sampling.logprobs = 3;
  TokenId next = kNoToken;
  float logprob = 0;
  engine.generate(g, [&](const Output& out) {
    for (const auto& [id, value] : out.tokens.at(0).top_logprobs) {
      if (next == kNoToken) next = id, logprob = value;
    }
  });
  EXPECT_EQ(whole.prompt[50].top_logprobs.at(0), (std::pair{next, logprob}));
  // And an answer may follow.
  r.sampling.max_tokens = 4;
  const Answer both = answer(engine, r);
  EXPECT_EQ(both.tokens.size(), 4u);
  EXPECT_EQ(both.prompt.at(89).logprob, whole.prompt[89].logprob);
}

TEST(PromptLogprobs, WorkForAPromptOfOneToken) {
  Engine engine(tiny_options());
  for (const int max_tokens : {0, 2}) {
    Request r = seeded_request({65}, max_tokens);
    r.sampling.prompt_logprobs = 1;
    const Answer a = answer(engine, r);
    ASSERT_EQ(a.prompt.size(), 1u);
    EXPECT_EQ(a.prompt[0].id, 65);
    EXPECT_TRUE(a.prompt[0].top_logprobs.empty());
  }
}

// Several prompts together, or one computed in one step, want more rows of logits than a step has.
TEST(PromptLogprobs, DoNotDependOnOtherPromptsOrChunkedPrefill) {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 6; ++i) {
    requests.push_back(seeded_request(random_tokens(40 + i, 120), 3));
    requests.back().sampling.prompt_logprobs = 0;
  }
  Engine engine(tiny_options());
  std::vector<Answer> alone;
  for (const Request& r : requests) alone.push_back(answer(engine, r));
  EngineOptions whole = tiny_options(), uncached = tiny_options();
  whole.chunked_prefill = false;
  uncached.kv_cache = false;
  for (const EngineOptions& o : {tiny_options(), whole, uncached}) {
    Engine crowded(o);
    const std::vector<Answers> together = testing::answers_together(crowded, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_same(alone[i], together[i][0]);
      ASSERT_EQ(together[i][0].prompt.size(), 120u);
      for (size_t j = 0; j < 120; ++j) EXPECT_EQ(alone[i].prompt[j].logprob, together[i][0].prompt[j].logprob);
    }
  }
}

TEST(Embeddings, DependOnlyOnThePrompt) {
  Engine engine(tiny_options());
  EngineOptions o = tiny_options();
  o.max_num_batched_tokens = o.max_num_seqs = 5;
  Engine narrow(o);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    Request r;
    r.prompt = random_tokens(11, 70);
    r.pooling = pooling;
    const Answer a = answer(engine, r), b = answer(narrow, r), again = answer(engine, r);
    ASSERT_EQ(a.last.embedding.size(), 256u);
    EXPECT_EQ(a.last.embedding, b.last.embedding);
    EXPECT_EQ(a.last.embedding, again.last.embedding);
    EXPECT_EQ(a.last.finish, FinishReason::kStop);
    double squares = 0;
    for (const float x : a.last.embedding) squares += static_cast<double>(x) * static_cast<double>(x);
    EXPECT_NEAR(squares, 1, 1e-5);
  }
}

// If nothing is generated, a prompt may fill the context and the cache; twice.
TEST(Embeddings, AndLogprobsWorkForPromptsThatFillTheContext) {
  EngineOptions o = tiny_options();
  o.max_model_len = 64;
  o.kv_cache_bytes = 4 * kTinyPageBytes;
  Engine engine(o);
  for (const bool embeds : {true, false, true, false}) {
    Request r = seeded_request(random_tokens(14, 64), embeds ? 16 : 0);
    r.pooling = embeds ? Pooling::kLast : Pooling::kNone;
    if (!embeds) r.sampling.prompt_logprobs = 0;
    const Answer a = answer(engine, r);
    EXPECT_EQ(a.last.finish, embeds ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_EQ(a.last.embedding.empty(), !embeds);
    EXPECT_TRUE(a.tokens.empty());
  }
  const auto ignore = [](const Output&) { FAIL(); };
  EXPECT_THROW(engine.submit(seeded_request(random_tokens(14, 64), 1), ignore), Error);
  Request r = seeded_request(random_tokens(14, 65), 0);
  r.sampling.prompt_logprobs = 0;
  EXPECT_THROW(engine.submit(r, ignore), Error);
}

TEST(Deadlines, EndOnlyTheirOwnRequest) {
  EngineOptions o = tiny_options();
  o.max_num_seqs = 1;
  Engine engine(o);
  Request slow = seeded_request(random_tokens(12, 10), 300), late = seeded_request(random_tokens(13, 10), 300);
  late.timeout = 1e-4;
  std::promise<FinishReason> slow_end, late_end;
  engine.submit(slow, [&](const Output& out) {
    if (out.finish != FinishReason::kNone) slow_end.set_value(out.finish);
  });
  engine.submit(late, [&](const Output& out) {
    if (out.finish != FinishReason::kNone) late_end.set_value(out.finish);
  });
  EXPECT_EQ(late_end.get_future().get(), FinishReason::kTimeout);
  EXPECT_EQ(slow_end.get_future().get(), FinishReason::kLength);
}

// Choices that end with their first token release everything, whether they would have run or waited.
TEST(Choices, MayEndWithTheirFirstToken) {
  EngineOptions o = tiny_options();
  o.max_num_seqs = 2;
  Engine engine(o);
  for (int i = 0; i < 3; ++i) {
    Request r = seeded_request(random_tokens(20, 30), 1);
    r.sampling.n = 6;
    int ends = 0;
    engine.generate(r, [&](const Output& out) { ends += out.finish == FinishReason::kLength; });
    EXPECT_EQ(ends, 6);
  }
}

// At steady load fewer than 4 % of the allocated slots are empty, and twice as many sequences run as if each reserved
// the memory of the longest.
TEST(Pages, WasteLittleAndHoldManySequences) {
  EngineOptions o = tiny_options();
  o.max_num_seqs = 32;
  o.max_model_len = 512;
  o.kv_cache_bytes = 10 * (512 / 16) * kTinyPageBytes;  // ten sequences of 512 tokens
  Engine engine(o);
  double unused = 0, taken = 0;
  int most_running = 0;
  std::promise<void> done;
  int left = 60;
  for (unsigned i = 0; i < 60; ++i) {
    engine.submit(seeded_request(random_tokens(500 + i, 150 + static_cast<int>(i % 50)), 60), [&](const Output& out) {
      const EngineStats stats = engine.stats();
      unused += stats.kv_slots_unused;
      taken += stats.kv_pages_used * 16;
      most_running = std::max(most_running, stats.running);
      if (out.finish != FinishReason::kNone && --left == 0) done.set_value();
    });
  }
  done.get_future().wait();
  EXPECT_LT(unused, 0.04 * taken);
  EXPECT_GE(most_running, 20);
}

// 500 concurrent requests of every kind get the answers that they get alone.
TEST(EqualityUnderLoad, FiveHundredRequestsGetTheirSoloAnswers) {
  std::mt19937 random(1);
  std::vector<Request> requests;
  for (unsigned i = 0; i < 500; ++i) {
    TokenIds prompt = random_tokens(random() % 5, static_cast<int>(random() % 100));  // five families of prefixes
    const TokenIds own = random_tokens(1000 + i, 1 + static_cast<int>(random() % 60));
    prompt.insert(prompt.end(), own.begin(), own.end());
    Request r = seeded_request(std::move(prompt), 1 + static_cast<int>(random() % 12));
    r.sampling.seed = i;
    r.sampling.temperature = random() % 3 == 0 ? 0.0f : 1.0f;
    r.sampling.n = random() % 10 == 0 ? 6 : 1;
    r.sampling.top_k = random() % 4 == 0 ? 20 : 0;
    r.priority = static_cast<int>(random() % 3);
    r.tenant = std::to_string(random() % 4);
    requests.push_back(std::move(r));
  }
  std::vector<Answers> alone;
  {
    EngineOptions o = tiny_options();
    o.prefix_cache = false;
    Engine engine(o);
    for (const Request& r : requests) alone.push_back(answers(engine, r));
  }
  EngineOptions o = tiny_options();
  o.max_model_len = 256;
  o.max_num_batched_tokens = 48;
  o.kv_cache_bytes = 28 * kTinyPageBytes;  // 28 pages, so that sequences are preempted and pages evicted
  o.host_cache_bytes = size_t{1} << 18;
  Engine engine(o);
  std::vector<bool> cancelled(requests.size());
  const std::vector<Answers> together = testing::answers_together(engine, requests, [&](size_t i, RequestId id) {
    if (i % 9 != 4) return;
    cancelled[i] = true;
    if (i % 2) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    engine.cancel(id);
  });
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t choice = 0; choice < alone[i].size(); ++choice) {
      const Answer &a = alone[i][choice], &b = together[i][choice];
      if (cancelled[i] && b.last.finish == FinishReason::kCancelled) {
        ASSERT_LE(b.tokens.size(), a.tokens.size());
        EXPECT_TRUE(std::equal(b.tokens.begin(), b.tokens.end(), a.tokens.begin())) << i;
        continue;
      }
      expect_same(a, b, "request " + std::to_string(i));
    }
  }
  const EngineStats stats = engine.stats();
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_GT(stats.prefix_hit_tokens, 0u);
  EXPECT_GT(stats.pages_evicted, 0u);
}

// So small that the emulated GPU computes them, too: 300 concurrent requests, sampled in every way, get the answers that they get
// alone.
TEST(EqualityUnderLoad, ThreeHundredShortRequestsGetTheirSoloAnswers) {
  std::mt19937 random(3);
  std::vector<Request> requests;
  for (unsigned i = 0; i < 300; ++i) {
    TokenIds prompt = random_tokens(random() % 3, static_cast<int>(random() % 20));  // three families of prefixes
    prompt.push_back(static_cast<TokenId>(random() % 256));
    Request r = seeded_request(std::move(prompt), i % 20 == 0 ? 40 : 1 + static_cast<int>(random() % 3));
    SamplingParams& s = r.sampling;
    s.seed = i;
    s.n = random() % 20 == 0 ? 3 : 1;
    if (random() % 3 == 0) s.temperature = 0;
    if (random() % 2 == 0) s.top_k = 1 + static_cast<int>(random() % 60);
    if (random() % 3 == 0) s.top_p = 0.8f;
    if (random() % 4 == 0) s.min_p = 0.05f;
    if (random() % 4 == 0) s.repetition_penalty = 1.3f;
    if (random() % 4 == 0) s.presence_penalty = 0.5f;
    if (random() % 8 == 0) s.logit_bias = {{static_cast<TokenId>(random() % 256), 5.0f}};
    if (random() % 2 == 0) s.logprobs.reset();
    r.priority = i % 20 == 0 ? 0 : 1;  // the long ones meet
    requests.push_back(std::move(r));
  }
  EngineOptions o = tiny_options();
  o.model = testing::smallest_model();
  o.max_model_len = 64;
  std::vector<Answers> alone;
  {
    EngineOptions plain = o;
    plain.prefix_cache = false;
    Engine engine(plain);
    for (const Request& r : requests) alone.push_back(answers(engine, r));
  }
  o.max_num_batched_tokens = 40;
  o.kv_cache_bytes = 8 * (kTinyPageBytes / 2);  // 8 pages for up to 16 sequences
  testing::expect_solo_answers_under_pressure(o, requests, alone);
}

// The same in every mode, with prompt lengths at the limits, cancellations and timeouts at any moment.
TEST(EqualityUnderLoad, HoldsInEveryMode) {
  const auto folder = std::filesystem::temp_directory_path() / ("quire-modes-" + std::to_string(::getpid()));
  constexpr int kContext = 96;
  std::mt19937 random(2);
  std::vector<Request> requests;
  for (unsigned i = 0; i < 40; ++i) {
    constexpr int kLengths[] = {1, 15, 16, 17, 32, 48, 64, kContext - 1};
    const int length = kLengths[random() % std::size(kLengths)];
    Request r = seeded_request(random_tokens(random() % 2, length), 1 + static_cast<int>(random() % 24));
    if (random() % 3 == 0) r.prompt.back() = static_cast<TokenId>(i);
    r.sampling.seed = i;
    r.sampling.n = random() % 6 == 0 ? 3 : 1;
    r.tenant = std::to_string(random() % 2);
    r.priority = static_cast<int>(random() % 2);
    if (random() % 6 == 0) {
      r.sampling.prompt_logprobs = 1;
      r.sampling.max_tokens = static_cast<int>(random() % 3);
    } else if (random() % 6 == 0) {
      r.pooling = random() % 2 ? Pooling::kMean : Pooling::kLast;
      r.sampling.n = 1;
    }
    requests.push_back(std::move(r));
  }
  EngineOptions plain_options = tiny_options();
  plain_options.prefix_cache = false;
  plain_options.max_model_len = kContext;
  std::vector<Answers> alone;
  {
    Engine engine(plain_options);
    for (const Request& r : requests) alone.push_back(answers(engine, r));
  }
  for (unsigned mode = 0; mode < 24; ++mode) {
    EngineOptions o = plain_options;
    o.prefix_cache = mode % 2 == 0;
    o.chunked_prefill = mode / 2 % 2 == 0;
    o.kv_cache = mode / 4 % 3 != 1;
    o.scheduler = mode / 4 % 3 == 2 ? SchedulerKind::kStatic : SchedulerKind::kContinuous;
    o.max_num_seqs = mode < 12 ? 6 : 3;
    o.max_num_batched_tokens = mode < 12 ? 20 : 3;
    o.kv_cache_bytes = (mode < 12 ? 12 : kContext / 16) * kTinyPageBytes;
    o.host_cache_bytes = 10 * kTinyPageBytes;
    if (mode % 3 == 0) o.cache_dir = folder.string();
    std::vector<Request> together = requests;
    for (Request& r : together) r.timeout = random() % 8 == 0 ? 0.001 * static_cast<double>(1 + random() % 100) : 0;
    Engine engine(o);
    const std::vector<Answers> all = testing::answers_together(engine, together, [&](size_t, RequestId id) {
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      if (random() % 6 == 0) engine.cancel(RequestId{static_cast<uint64_t>(id) - random() % 8});
    });
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t choice = 0; choice < all[i].size(); ++choice) {
        const Answer &a = alone[i][choice], &b = all[i][choice];
        const std::string what = "mode " + std::to_string(mode) + ", request " + std::to_string(i);
        EXPECT_EQ(b.ends, 1) << what;
        if (b.last.finish == FinishReason::kCancelled || b.last.finish == FinishReason::kTimeout) {
          ASSERT_LE(b.tokens.size(), a.tokens.size()) << what;
          EXPECT_TRUE(std::equal(b.tokens.begin(), b.tokens.end(), a.tokens.begin())) << what;
          continue;
        }
        expect_same(a, b, what);
        EXPECT_EQ(a.last.embedding, b.last.embedding) << what;
        ASSERT_EQ(a.prompt.size(), b.prompt.size()) << what;
        for (size_t j = 0; j < a.prompt.size(); ++j) EXPECT_EQ(a.prompt[j].logprob, b.prompt[j].logprob) << what;
      }
    }
    // The last step runs its callbacks before it updates the statistics.
    for (int i = 0; i < 1000 && engine.stats().running + engine.stats().waiting > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engine.stats().running + engine.stats().waiting, 0) << "mode " << mode;
    EXPECT_EQ(engine.stats().kv_pages_used, 0) << "mode " << mode;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace quire
