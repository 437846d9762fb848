// The engine as its users see it: answers do not depend on company, and every request ends exactly once.

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "base/error.h"
#include "quire/engine.h"
#include "text/tokenizer.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

struct Answer {
  TokenIds tokens;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::string stop_reason, error;
  int ends = 0;
  Usage usage;
  std::vector<float> logprobs;

  void add(const Output& out) {
    text += out.text;
    for (const OutputToken& t : out.tokens) tokens.push_back(t.id), logprobs.push_back(t.logprob);
    if (out.finish == FinishReason::kNone) return;
    ++ends;
    finish = out.finish;
    stop_reason = out.stop_reason;
    error = out.error;
    usage = out.usage;
  }
};

EngineOptions options() {
  EngineOptions o;
  o.model = testing::tiny_model();
  o.threads = 2;
  o.max_num_seqs = 16;
  return o;
}

Request request(unsigned seed, int prompt_tokens, int max_tokens, float temperature = 0.9f) {
  std::mt19937 random(seed);
  Request r;
  for (int i = 0; i < prompt_tokens; ++i) r.prompt.push_back(static_cast<TokenId>(random() % 256));
  r.sampling.temperature = temperature;
  r.sampling.seed = seed;
  r.sampling.max_tokens = max_tokens;
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 0;
  return r;
}

std::vector<Answer> generate(Engine& engine, const Request& r) {
  std::vector<Answer> answers(static_cast<size_t>(r.sampling.n));
  engine.generate(r, [&](const Output& out) { answers[static_cast<size_t>(out.choice)].add(out); });
  return answers;
}

std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 24; ++i)
    requests.push_back(
        request(i, 3 + static_cast<int>(i * 37 % 90), 5 + static_cast<int>(i * 11 % 30), i % 3 == 0 ? 0.0f : 1.0f));
  requests[5].sampling.top_p = 0.8f;
  requests[6].sampling.repetition_penalty = 1.3f;
  requests[7].sampling.top_k = 5;
  return requests;
}

std::vector<Answer> all_at_once(const EngineOptions& o, const std::vector<Request>& requests,
                                EngineStats* stats = nullptr) {
  Engine engine(o);
  std::vector<Answer> answers(requests.size());
  std::mutex mutex;
  std::promise<void> done;
  size_t left = requests.size();
  for (size_t i = 0; i < requests.size(); ++i) {
    engine.submit(requests[i], [&, i](const Output& out) {
      const std::lock_guard lock(mutex);
      answers[i].add(out);
      if (out.finish != FinishReason::kNone && --left == 0) done.set_value();
    });
  }
  done.get_future().wait();
  if (stats) *stats = engine.stats();
  return answers;
}

void expect_same(const std::vector<Answer>& a, const std::vector<Answer>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens) << what << ", request " << i;
    EXPECT_EQ(a[i].text, b[i].text) << what << ", request " << i;
    EXPECT_EQ(a[i].logprobs, b[i].logprobs) << what << ", request " << i;
    EXPECT_EQ(b[i].ends, 1) << what << ", request " << i;
    EXPECT_EQ(b[i].finish, a[i].finish) << what << ", request " << i;
  }
}

TEST(Engine, AnswersDoNotDependOnCompanyChunksCacheOrPreemption) {
  const auto requests = mixed_requests();
  std::vector<Answer> alone;
  {
    Engine engine(options());
    for (const Request& r : requests) alone.push_back(generate(engine, r)[0]);
  }
  for (size_t i = 0; i < alone.size(); ++i)
    EXPECT_EQ(alone[i].tokens.size(), static_cast<size_t>(*requests[i].sampling.max_tokens));
  expect_same(alone, all_at_once(options(), requests), "together");
  EngineOptions o = options();
  o.max_num_batched_tokens = 7;
  expect_same(alone, all_at_once(o, requests), "rows 7");
  o.max_num_batched_tokens = 1;
  o.threads = 3;
  expect_same(alone, all_at_once(o, requests), "rows 1, 3 threads");
  o = options();
  o.chunked_prefill = false;
  expect_same(alone, all_at_once(o, requests), "whole prompts");
  o = options();
  o.max_num_seqs = 3;
  o.threads = 1;
  expect_same(alone, all_at_once(o, requests), "3 sequences, 1 thread");
  o = options();
  o.kv_cache = false;
  expect_same(alone, all_at_once(o, requests), "no KV cache");
}

TEST(Engine, PreemptsWhenPagesRunOutAndAnswersTheSame) {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 12; ++i) requests.push_back(request(i, 9 + static_cast<int>(i), 70));
  const auto expected = all_at_once(options(), requests);
  EngineOptions o = options();
  o.max_model_len = 160;
  o.kv_cache_bytes = size_t{13} * 2 * 2 * 16 * 32 * 2 *
                     2;  // 13 pages of 2 layers, 2 heads, 16 tokens, 32 dimensions, keys and values of bf16
  EngineStats stats;
  expect_same(expected, all_at_once(o, requests, &stats), "13 pages");
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.kv_pages, 13);
}

TEST(Engine, ChoicesShareThePromptAndAnswerAsIfTheyDidNot) {
  Request r = request(3, 37, 12);
  r.sampling.n = 5;
  Engine shared(options());
  EngineOptions o = options();
  o.max_num_seqs = 1;  // the further choices wait and compute the prompt again
  Engine separate(o);
  const auto a = generate(shared, r), b = generate(separate, r);
  expect_same(a, b, "n = 5");
  EXPECT_NE(a[0].tokens, a[1].tokens);
  for (Engine* engine : {&shared, &separate}) {  // the counters follow the last answer
    for (int i = 0; i < 1000 && engine->stats().kv_pages_used != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engine->stats().kv_pages_used, 0);
  }
}

TEST(Engine, EndsAtStopStringsStopTokensAndLength) {
  Engine engine(options());
  const Request plain = request(11, 10, 40);
  const Answer whole = generate(engine, plain)[0];
  EXPECT_EQ(whole.finish, FinishReason::kLength);
  EXPECT_EQ(whole.usage.completion_tokens, 40);
  EXPECT_EQ(whole.usage.prompt_tokens, 10);
  const size_t middle = whole.text.size() / 2;
  std::string stop = whole.text.substr(middle, 3);
  while (!stop.empty() && (stop[0] & 0xC0) == 0x80) stop.erase(0, 1);  // begin at a character
  Request r = plain;
  r.sampling.stop = {"this is not there", stop};
  Answer cut = generate(engine, r)[0];
  EXPECT_EQ(cut.finish, FinishReason::kStop);
  EXPECT_EQ(cut.stop_reason, stop);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
  r.sampling.include_stop_str_in_output = true;
  EXPECT_EQ(generate(engine, r)[0].text, whole.text.substr(0, whole.text.find(stop) + stop.size()));
  r = plain;
  r.sampling.stop_token_ids = {whole.tokens[7]};
  cut = generate(engine, r)[0];
  EXPECT_EQ(cut.finish, FinishReason::kStop);
  EXPECT_EQ(cut.stop_reason, std::to_string(whole.tokens[7]));
  EXPECT_EQ(
      cut.tokens.size(),
      static_cast<size_t>(std::find(whole.tokens.begin(), whole.tokens.end(), whole.tokens[7]) - whole.tokens.begin()) +
          1);
}

TEST(Engine, HonoursEndOfSequenceMinTokensAndIgnoreEos) {
  Engine engine(options());
  const TokenId eos = *engine.tokenizer().eos();
  Request r = request(1, 4, 20, 0.0f);
  r.sampling.ignore_eos = false;
  r.sampling.logit_bias = {{eos, 100.0f}};
  Answer a = generate(engine, r)[0];
  EXPECT_EQ(a.finish, FinishReason::kStop);
  EXPECT_EQ(a.tokens, TokenIds{eos});
  EXPECT_EQ(a.text, "");
  r.sampling.min_tokens = 6;
  a = generate(engine, r)[0];
  EXPECT_EQ(a.tokens.size(), 7u);
  EXPECT_EQ(a.tokens.back(), eos);
  r.sampling.min_tokens = 0;
  r.sampling.ignore_eos = true;
  a = generate(engine, r)[0];
  EXPECT_EQ(a.tokens.size(), 20u);
  EXPECT_EQ(a.finish, FinishReason::kLength);
}

TEST(Engine, CancelsAndShutsDownWithoutLosingAnAnswer) {
  std::atomic<int> ends{0};
  std::atomic<int> cancelled{0};
  const auto count = [&](const Output& out) {
    if (out.finish == FinishReason::kNone) return;
    ++ends;
    cancelled += out.finish == FinishReason::kCancelled;
  };
  {
    Engine engine(options());
    std::vector<RequestId> ids;
    for (unsigned i = 0; i < 30; ++i) {
      Request r = request(i, 20, 400);
      r.sampling.n = i % 5 == 0 ? 3 : 1;
      ids.push_back(engine.submit(r, count));
    }
    for (size_t i = 0; i < ids.size(); i += 2) engine.cancel(ids[i]);
    engine.cancel(ids[0]);
    engine.cancel(123456);
  }
  EXPECT_EQ(ends, 24 + 6 * 3);
  EXPECT_GT(cancelled, 0);
}

TEST(Engine, RefusesWhatCanNeverRun) {
  Engine engine(options());
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
}

TEST(Engine, NamesWhatIsWrongWithItsOptions) {
  const auto message = [](auto change) -> std::string {
    EngineOptions o = options();
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
  EXPECT_NE(message([](auto& o) { o.kv_cache_dtype = "q4"; }).find("bf16"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.model = "/nowhere.gguf"; }).find("/nowhere.gguf"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.max_model_len = 1 << 20; }).find("512"), std::string::npos);
  EXPECT_NE(message([](auto& o) {
              o.max_model_len = 512;
              o.kv_cache_bytes = 4096;
            }).find("--kv-cache-size"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.threads = -1; }).find("--threads"), std::string::npos);
}

}  // namespace
}  // namespace quire
