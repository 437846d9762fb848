// The engine as its users see it: answers do not depend on other requests, and every request ends exactly once.

#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::Answers;
using testing::answers;
using testing::tiny_options;

Request request(unsigned seed, int prompt_tokens, int max_tokens, float temperature = 0.9f) {
  Request r;
  r.prompt = testing::random_tokens(seed, prompt_tokens);
  r.sampling.temperature = temperature;
  r.sampling.seed = seed;
  r.sampling.max_tokens = max_tokens;
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 0;
  return r;
}

// The samplers with a memory of the answer or a draw of their own: kinds 0 to 5.
constexpr size_t kSamplers = 6;
void set_sampler(SamplingParams& s, size_t kind) {
  switch (kind) {
    case 0:
      s.dry_multiplier = 5;
      s.dry_allowed_length = 1;
      s.dry_sequence_breakers = {"a", "b", "the"};
      return;
    case 1:
      s.xtc_probability = 0.5f;
      s.xtc_threshold = 0.01f;
      return;
    case 2:
    case 3:
      s.mirostat = kind == 2 ? 1 : 2;
      s.mirostat_tau = 2;
      s.mirostat_eta = 0.3f;
      return;
    case 4:
      s.dynatemp_range = 0.5f;
      return;
    default:
      s.top_n_sigma = 1;
      return;
  }
}

std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 24; ++i)
    requests.push_back(
        request(i, 3 + static_cast<int>(i * 37 % 90), 5 + static_cast<int>(i * 11 % 30), i % 3 == 0 ? 0.0f : 1.0f));
  requests[5].sampling.top_p = 0.8f;
  requests[6].sampling.repetition_penalty = 1.3f;
  requests[7].sampling.top_k = 5;
  for (size_t kind = 0; kind < kSamplers; ++kind) set_sampler(requests[kind * 3 + 8 - kind % 2].sampling, kind);
  return requests;
}

std::vector<Answers> all_at_once(const EngineOptions& o, const std::vector<Request>& requests,
                                 EngineStats* stats = nullptr) {
  Engine engine(o);
  auto all = testing::answers_together(engine, requests);
  if (stats) *stats = engine.stats();
  return all;
}

void expect_same(const std::vector<Answers>& a, const std::vector<Answers>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    for (size_t choice = 0; choice < a[i].size(); ++choice)
      testing::expect_same(a[i][choice], b[i][choice], what + ", request " + std::to_string(i));
  }
}

TEST(Engine, AnswersDoNotDependOnOtherRequestsChunksCacheOrPreemption) {
  const auto requests = mixed_requests();
  std::vector<Answers> alone;
  {
    Engine engine(tiny_options());
    for (const Request& r : requests) alone.push_back(answers(engine, r));
  }
  for (size_t i = 0; i < alone.size(); ++i)
    EXPECT_EQ(alone[i][0].tokens.size(), static_cast<size_t>(*requests[i].sampling.max_tokens));
  expect_same(alone, all_at_once(tiny_options(), requests), "together");
  EngineOptions o = tiny_options();
  o.max_num_batched_tokens = o.max_num_seqs = 7;
  expect_same(alone, all_at_once(o, requests), "rows 7");
  o.max_num_batched_tokens = o.max_num_seqs = 1;
  o.threads = 3;
  expect_same(alone, all_at_once(o, requests), "rows 1, 3 threads");
  o = tiny_options();
  o.chunked_prefill = false;
  expect_same(alone, all_at_once(o, requests), "whole prompts");
  o = tiny_options();
  o.max_num_seqs = 3;
  o.threads = 1;
  expect_same(alone, all_at_once(o, requests), "3 sequences, 1 thread");
  o = tiny_options();
  o.kv_cache = false;
  expect_same(alone, all_at_once(o, requests), "no KV cache");
}

TEST(Engine, PreemptionDoesNotChangeAnswers) {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 12; ++i) requests.push_back(request(i, 9 + static_cast<int>(i), 70));
  for (size_t kind = 0; kind < kSamplers; ++kind) set_sampler(requests[2 * kind].sampling, kind);
  const auto expected = all_at_once(tiny_options(), requests);
  EngineOptions o = tiny_options();
  o.max_model_len = 160;
  o.kv_cache_bytes = 13 * testing::kTinyPageBytes;
  EngineStats stats;
  expect_same(expected, all_at_once(o, requests, &stats), "13 pages");
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.kv_pages, 13);
}

TEST(Engine, ChoicesThatShareThePromptAnswerAsIfTheyDidNot) {
  Request r = request(3, 37, 12);
  r.sampling.n = 5;
  Engine shared(tiny_options());
  EngineOptions o = tiny_options();
  o.max_num_seqs = 1;  // the further choices wait and compute the prompt again
  Engine separate(o);
  const Answers a = answers(shared, r), b = answers(separate, r);
  expect_same({a}, {b}, "n = 5");
  EXPECT_NE(a[0].tokens, a[1].tokens);
  for (size_t kind = 0; kind < kSamplers; ++kind) {
    Request other = r;
    set_sampler(other.sampling, kind);
    const Answers c = answers(shared, other);
    expect_same({c}, {answers(separate, other)}, "sampler " + std::to_string(kind));
    EXPECT_FALSE(std::ranges::equal(c, a, {}, &Answer::tokens, &Answer::tokens)) << "sampler " << kind;
    other.sampling.n = 1;
    testing::expect_same(testing::answer(shared, other), c[0]);
  }
  for (Engine* engine : {&shared, &separate}) {  // the counters follow the last answer
    for (int i = 0; i < 1000 && engine->stats().kv_pages_used != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engine->stats().kv_pages_used, 0);
  }
}

TEST(Engine, EndsAtStopStringsStopTokensAndLength) {
  Engine engine(tiny_options());
  const Request plain = request(11, 10, 40);
  const Answer whole = testing::answer(engine, plain);
  EXPECT_EQ(whole.last.finish, FinishReason::kLength);
  EXPECT_EQ(whole.last.usage.completion_tokens, 40);
  EXPECT_EQ(whole.last.usage.prompt_tokens, 10);
  const size_t middle = whole.text.size() / 2;
  std::string stop = whole.text.substr(middle, 3);
  while (!stop.empty() && (stop[0] & 0xC0) == 0x80) stop.erase(0, 1);  // begin at a character
  Request r = plain;
  r.sampling.stop = {"this is not there", stop};
  Answer cut = testing::answer(engine, r);
  EXPECT_EQ(cut.last.finish, FinishReason::kStop);
  EXPECT_EQ(cut.last.stop_reason, stop);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
  r.sampling.include_stop_str_in_output = true;
  EXPECT_EQ(testing::answer(engine, r).text, whole.text.substr(0, whole.text.find(stop) + stop.size()));
  r = plain;
  r.sampling.stop_token_ids = {whole.tokens[7]};
  cut = testing::answer(engine, r);
  EXPECT_EQ(cut.last.finish, FinishReason::kStop);
  EXPECT_EQ(cut.last.stop_reason, std::to_string(whole.tokens[7]));
  EXPECT_EQ(
      cut.tokens.size(),
      static_cast<size_t>(std::find(whole.tokens.begin(), whole.tokens.end(), whole.tokens[7]) - whole.tokens.begin()) +
          1);
}

TEST(Engine, HonoursEndOfSequenceMinTokensAndIgnoreEos) {
  Engine engine(tiny_options());
  const TokenId eos = *engine.tokenizer().eos();
  Request r = request(1, 4, 20, 0.0f);
  r.sampling.ignore_eos = false;
  r.sampling.logit_bias = {{eos, 100.0f}};
  Answer a = testing::answer(engine, r);
  EXPECT_EQ(a.last.finish, FinishReason::kStop);
  EXPECT_EQ(a.tokens, TokenIds{eos});
  EXPECT_EQ(a.text, "");
  r.sampling.min_tokens = 6;
  a = testing::answer(engine, r);
  EXPECT_EQ(a.tokens.size(), 7u);
  EXPECT_EQ(a.tokens.back(), eos);
  r.sampling.min_tokens = 0;
  r.sampling.ignore_eos = true;
  a = testing::answer(engine, r);
  EXPECT_EQ(a.tokens.size(), 20u);
  EXPECT_EQ(a.last.finish, FinishReason::kLength);
}

TEST(Engine, GeneratesAllowedTokensAndNoBadWords) {
  Engine engine(tiny_options());
  Request r = request(2, 12, 30, 0.0f);
  for (TokenId letter = 'a'; letter <= 'z'; ++letter) r.sampling.allowed_token_ids.push_back(letter);
  const Answer free = testing::answer(engine, r);
  ASSERT_EQ(engine.tokenizer().encode(free.text), free.tokens) << "letters are tokens";
  for (const char letter : free.text) EXPECT_TRUE(letter >= 'a' && letter <= 'z');
  // Banning the ninth letter leaves the answer as it was up to that letter's first occurrence.
  const std::string ninth = free.text.substr(8, 1);
  r.sampling.bad_words = {ninth};
  const std::string without = testing::answer(engine, r).text;
  EXPECT_EQ(without.find(ninth), std::string::npos);
  EXPECT_EQ(without.substr(0, free.text.find(ninth)), free.text.substr(0, free.text.find(ninth)));
  Request shared = r;
  shared.banned_runs = engine.spellings(std::exchange(shared.sampling.bad_words, {}));
  EXPECT_EQ(testing::answer(engine, shared).text, without);
  // A word of several tokens ends before its last.
  const std::string word = free.text.substr(3, 3);
  r.sampling.bad_words = {"no such words", " " + word};
  const std::string cut = testing::answer(engine, r).text;
  const size_t at = free.text.find(word) + 2;
  EXPECT_EQ(cut.substr(0, at), free.text.substr(0, at));
  EXPECT_NE(cut[at], free.text[at]);
  EXPECT_EQ(cut.find(word), std::string::npos);
  // Where nothing may follow, the answer ends; the text that a stop string held back comes.
  r.sampling.allowed_token_ids = {'x'};
  r.sampling.bad_words = {"xxxx"};
  r.sampling.stop = {"xxxy"};
  r.sampling.n = 3;
  for (const Answer& end : testing::answers(engine, r)) {
    EXPECT_EQ(end.text, "xxx");
    EXPECT_EQ(end.last.finish, FinishReason::kStop);
    EXPECT_EQ(end.last.usage.completion_tokens, 3);
    EXPECT_EQ(end.ends, 1);
  }
  r.sampling.bad_words = {"x"};
  for (const Answer& end : testing::answers(engine, r)) {
    EXPECT_EQ(end.text, "");
    EXPECT_EQ(end.last.finish, FinishReason::kStop);
    EXPECT_EQ(end.ends, 1);
  }
}

TEST(Engine, EveryAnswerEndsOnCancelAndShutdown) {
  std::atomic<int> ends{0};
  std::atomic<int> cancelled{0};
  const auto count = [&](const Output& out) {
    if (out.finish == FinishReason::kNone) return;
    ++ends;
    cancelled += out.finish == FinishReason::kCancelled;
  };
  {
    Engine engine(tiny_options());
    std::vector<RequestId> ids;
    for (unsigned i = 0; i < 30; ++i) {
      Request r = request(i, 20, 400);
      r.sampling.n = i % 5 == 0 ? 3 : 1;
      ids.push_back(engine.submit(r, count));
    }
    for (size_t i = 0; i < ids.size(); i += 2) engine.cancel(ids[i]);
    engine.cancel(ids[0]);
    engine.cancel(RequestId{123456});
  }
  EXPECT_EQ(ends, 24 + 6 * 3);
  EXPECT_GT(cancelled, 0);
}

// Requests that callbacks submit while the engine stops end, too.
TEST(Engine, EndsRequestsSubmittedDuringShutdown) {
  int ends = 0;
  {
    Engine::Callback again;
    Engine engine(tiny_options());
    again = [&](const Output& out) {
      if (out.finish != FinishReason::kCancelled || ++ends >= 5) return;
      engine.submit(request(1, 20, 400), again);
    };
    engine.submit(request(1, 20, 400), again);
  }
  EXPECT_EQ(ends, 5);
}

TEST(Engine, RefusesRequestsThatCanNeverRun) {
  Engine engine(tiny_options());
  const auto ignore = [](const Output&) { FAIL(); };
  const auto refused = [&](Request r) { EXPECT_THROW(engine.submit(std::move(r), ignore), Error); };
  refused(request(1, 0, 5));
  refused(request(1, engine.info().max_model_len, 5));
  Request r = request(1, 4, 5);
  r.prompt[2] = engine.info().vocab_size;
  refused(r);
  r.prompt[2] = -1;
  refused(r);
  r = request(1, 4, 5);
  r.sampling.top_p = 2;
  refused(r);
  r = request(1, 4, 5);
  for (const TokenIds& run : {TokenIds{}, TokenIds{1, -1}, TokenIds{engine.info().vocab_size}}) {
    r.banned_runs = std::make_shared<const std::vector<TokenIds>>(1, run);
    refused(r);
  }
}

TEST(Engine, EncodesAndDecodesTextForEmbeddingPrograms) {
  Engine engine(tiny_options());
  const TokenIds ids = engine.encode("sea");
  EXPECT_EQ(ids, engine.tokenizer().encode("sea", {.add_special = true}));
  EXPECT_EQ(engine.decode(engine.tokenizer().encode("sea")), "sea");
  EXPECT_FALSE(engine.has_chat_template());
  EXPECT_THROW(engine.encode_messages(R"([{"role": "user", "content": "Hello"}])"), Error) << "no chat template";
  EXPECT_THROW(engine.encode_messages("not JSON"), Error);
}

TEST(Engine, NamesInvalidOptions) {
  const auto message = [](auto change) -> std::string {
    EngineOptions o = tiny_options();
    change(o);
    try {
      Engine engine(o);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(message([](auto& o) { o.kernels = "sse9"; }).find("avx2"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.activations = "int3"; }).find("int8"), std::string::npos);
  EXPECT_EQ(message([](auto& o) { o.kv_cache_dtype = "int3"; }),
            "--kv-cache-dtype \"int3\" is not supported; use auto, bf16, f16, f32, fp8, int4 or int8");
  EXPECT_NE(message([](auto& o) { o.model = "/nowhere.gguf"; }).find("/nowhere.gguf"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.max_model_len = 1 << 20; }).find("512"), std::string::npos);
  EXPECT_NE(message([](auto& o) {
              o.max_model_len = 512;
              o.kv_cache_bytes = 4096;
            }).find("--kv-cache-size"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.threads = -1; }).find("--threads"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.max_num_seqs = INT_MAX; }).find("--max-num-seqs"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.max_num_batched_tokens = INT_MAX; }).find("1048576"), std::string::npos);
  EXPECT_NE(message([](auto& o) {
              o.max_num_seqs = 16;
              o.max_num_batched_tokens = 15;
            }).find("--max-num-batched-tokens 15 is less than --max-num-seqs 16"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.tpot_target = std::nan(""); }).find("--tpot-target"), std::string::npos);
}

}  // namespace
}  // namespace quire
