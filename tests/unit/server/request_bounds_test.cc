// What one request may ask for in all, however it is spread over prompts, choices and fields.
#include <gtest/gtest.h>

#include "unit/server/running_server.h"

namespace quire {
namespace {

std::string completion(const std::string& prompt, const std::string& fields) {
  return R"({"prompt": )" + prompt + ", " + fields + "}";
}
std::string text(size_t length) { return '"' + std::string(length, 'x') + '"'; }
std::string list_of(size_t count, const std::string& element) {
  std::string list = "[";
  for (size_t i = 0; i < count; ++i) list += (i > 0 ? "," : "") + element;
  return list + "]";
}

void expect_refused(HttpClient& client, std::string_view path, const std::string& body, const char* field) {
  const HttpAnswer answer = client.post(path, body);
  EXPECT_EQ(answer.status, 400) << body.substr(0, 100);
  EXPECT_EQ(answer.error_param(), field) << answer.body;
}

TEST(RequestBounds, FiguresAreCountedOverTheWholeRequest) {
  RunningServer running;
  HttpClient client(running.port());
  const auto completes = [&](const std::string& prompt, const std::string& fields) {
    return client.post(kCompletionPath, completion(prompt, fields)).status;
  };
  EXPECT_EQ(completes(text(1000), R"("prompt_logprobs": 0, "n": 128)"), 200);
  expect_refused(client, kCompletionPath, completion(text(2000), R"("prompt_logprobs": 0, "n": 128)"),
                 "prompt_logprobs");
  expect_refused(client, kCompletionPath, completion(list_of(300, text(100)), R"("prompt_logprobs": 9)"),
                 "prompt_logprobs");
  EXPECT_EQ(completes(text(10), R"("logprobs": 1000, "max_tokens": 249)"), 200);
  expect_refused(client, kCompletionPath, completion(text(10), R"("logprobs": 1000, "max_tokens": 250)"), "logprobs");
  expect_refused(client, kCompletionPath, completion(text(10), R"("logprobs": 1000, "max_tokens": 50, "n": 5)"),
                 "logprobs");
  expect_refused(client, kCompletionPath, completion(text(10), R"("logprobs": 1000, "stream": true, "n": 17)"),
                 "logprobs");
  expect_refused(client, kCompletionPath, completion(text(90'000), R"("return_token_ids": true, "n": 128)"),
                 "return_token_ids");
  expect_refused(client, kCompletionPath, completion(text(99'000), R"("echo": true, "max_tokens": 1, "n": 128,
      "prompt_logprobs": 1)"),
                 "prompt_logprobs");
  EXPECT_EQ(completes(text(10), R"("logprobs": 1000, "max_tokens": 1000, "stream": true)"), 200) << "leaves at once";
}

TEST(RequestBounds, AnAnswerWithoutALengthEndsWithItsFigures) {
  RunningServer running;
  HttpClient client(running.port());
  ASSERT_EQ(client.post(kChatPath, chat_body(R"("logprobs": true, "top_logprobs": 24)")).status, 200);
  EXPECT_EQ(running.model.last_sampling().max_tokens, 10'000);
  ASSERT_EQ(client.post(kChatPath, chat_body(R"("logprobs": true, "top_logprobs": 24, "n": 2)")).status, 200);
  EXPECT_EQ(running.model.last_sampling().max_tokens, 5'000);
  ASSERT_EQ(client.post(kChatPath, chat_body(R"("logprobs": true)")).status, 200);
  EXPECT_EQ(running.model.last_sampling().max_tokens, std::nullopt) << "the context ends before";
}

// They come in one piece, larger than what may wait for a slow reader.
TEST(RequestBounds, ManyFiguresAtOnceAreNoSlowReader) {
  ServerOptions options;
  options.max_stream_bytes = 4096;
  RunningServer running(options);
  HttpClient client(running.port());
  EXPECT_EQ(client.post(kCompletionPath, completion(text(1000), R"("prompt_logprobs": 20, "max_tokens": 1)")).status,
            200);
}

TEST(RequestBounds, TextsAndBiasesAreCountedInAll) {
  RunningServer running;
  HttpClient client(running.port());
  const auto with = [](const std::string& field, const std::string& value) {
    return completion(text(1), '"' + field + "\": " + value);
  };
  for (const char* field : {"bad_words", "stop"}) {
    EXPECT_EQ(client.post(kCompletionPath, with(field, list_of(16, text(4096)))).status, 200);
    expect_refused(client, kCompletionPath, with(field, list_of(17, text(4096))), field);
  }
  std::string biases = "{";
  for (int i = 0; i < 257; ++i) biases += (i > 0 ? ",\"" : "\"") + std::string(static_cast<size_t>(i), '0') + "1\": 1";
  expect_refused(client, kCompletionPath, with("logit_bias", biases + "}"), "logit_bias");
  expect_refused(client, kCompletionPath,
                 completion(list_of(300, text(1)), R"("max_tokens": 1, "stop": )" + list_of(16, text(4096))), "prompt");
}

TEST(RequestBounds, BadWordsAreTokenizedOnceForAllPrompts) {
  RunningServer running;
  HttpClient client(running.port());
  ASSERT_EQ(client.post(kCompletionPath, completion(list_of(20, text(1)), R"("bad_words": ["ugly"])")).status, 200);
  EXPECT_EQ(running.model.spelled, 1);
  EXPECT_EQ(running.model.last_sampling().bad_words.size(), 0u);
  ASSERT_NE(running.model.last_request().banned_runs, nullptr);
  EXPECT_EQ(*running.model.last_request().banned_runs, (std::vector<TokenIds>{{'u', 'g', 'l', 'y'}}));
}

TEST(RequestBounds, AnswersAreCountedOverAllPrompts) {
  RunningServer running;
  HttpClient client(running.port());
  EXPECT_EQ(client.post(kCompletionPath, completion(list_of(16, text(1)), R"("n": 128, "max_tokens": 1)")).status, 200);
  expect_refused(client, kCompletionPath, completion(list_of(17, text(1)), R"("n": 128, "max_tokens": 1)"), "n");
}

}  // namespace
}  // namespace quire
