// What one request may ask for in total, however it is spread over prompts, choices and fields.
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

TEST(RequestBounds, CountLogprobsIdsAndEchoOverTheWholeRequest) {
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
  EXPECT_EQ(completes(text(10), R"("logprobs": 1000, "max_tokens": 1000, "stream": true)"), 200)
      << "a stream keeps none";
}

TEST(RequestBounds, LimitAnAnswerWithoutMaxTokensSoThatItsLogprobsFit) {
  RunningServer running;
  HttpClient client(running.port());
  ASSERT_EQ(client.post(kChatPath, chat_body(R"("logprobs": true, "top_logprobs": 24)")).status, 200);
  EXPECT_EQ(running.model.last_sampling().max_tokens, 10'000);
  ASSERT_EQ(client.post(kChatPath, chat_body(R"("logprobs": true, "top_logprobs": 24, "n": 2)")).status, 200);
  EXPECT_EQ(running.model.last_sampling().max_tokens, 5'000);
  ASSERT_EQ(client.post(kChatPath, chat_body(R"("logprobs": true)")).status, 200);
  EXPECT_EQ(running.model.last_sampling().max_tokens, std::nullopt) << "the context ends first";
}

// Log-probabilities of a prompt arrive in one piece, larger than what may wait for a slow reader.
TEST(RequestBounds, DoNotTakeALargePieceForASlowReader) {
  ServerOptions options;
  options.max_stream_bytes = 4096;
  RunningServer running(options);
  HttpClient client(running.port());
  EXPECT_EQ(client.post(kCompletionPath, completion(text(1000), R"("prompt_logprobs": 20, "max_tokens": 1)")).status,
            200);
}

TEST(RequestBounds, CountTextsAndBiasesInTotal) {
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

TEST(RequestBounds, TokenizeBadWordsOnceForAllPrompts) {
  RunningServer running;
  HttpClient client(running.port());
  ASSERT_EQ(client.post(kCompletionPath, completion(list_of(20, text(1)), R"("bad_words": ["ugly"])")).status, 200);
  EXPECT_EQ(running.model.spelled, 1);
  EXPECT_EQ(running.model.last_sampling().bad_words.size(), 0u);
  ASSERT_NE(running.model.last_request().banned_runs, nullptr);
  EXPECT_EQ(*running.model.last_request().banned_runs, (std::vector<TokenIds>{{'u', 'g', 'l', 'y'}}));
}

TEST(RequestBounds, CountAnswersOverAllPrompts) {
  RunningServer running;
  HttpClient client(running.port());
  EXPECT_EQ(client.post(kCompletionPath, completion(list_of(16, text(1)), R"("n": 128, "max_tokens": 1)")).status, 200);
  expect_refused(client, kCompletionPath, completion(list_of(17, text(1)), R"("n": 128, "max_tokens": 1)"), "n");
}

TEST(RequestBounds, LeaveOtherTenantsRoomInTheQueue) {
  ServerOptions options;
  options.api_keys = {"sk-a", "sk-b"};
  options.max_running = 4;
  options.max_queue = 4;
  RunningServer running(options);
  running.model.endless = true;
  running.model.token_time = std::chrono::milliseconds(1);
  HttpClient large(running.port()), first(running.port()), other(running.port());
  large.send(HttpClient::request("POST", kCompletionPath, completion(list_of(200, text(1)), R"("max_tokens": 99999)"),
                                 "Authorization: Bearer sk-a\r\n"));
  ASSERT_TRUE(eventually([&] { return running.server->models().admission()->inside() == 200; }));
  const std::string small = completion(text(1), R"("max_tokens": 1)");
  EXPECT_EQ(first.call("POST", kCompletionPath, small, "Authorization: Bearer sk-a\r\n").status, 429);
  EXPECT_EQ(other.call("POST", kCompletionPath, small, "Authorization: Bearer sk-b\r\n").status, 200);
}

TEST(RequestBounds, RefuseAPromptThatLeavesNoRoomForAnAnswer) {
  RunningServer running;
  HttpClient client(running.port());
  const HttpAnswer answer = client.post(kCompletionPath, completion(text(100'000), R"("max_tokens": 1)"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(
      answer.json()["error"]["message"],
      "This model's maximum context length is 100000 tokens. However, your prompt resulted in 100000 tokens, which "
      "leaves no room for an answer. Please reduce the length of the prompt.");
  EXPECT_EQ(client.post(kCompletionPath, completion(text(99'999), R"("max_tokens": 1)")).status, 200);
}

}  // namespace
}  // namespace quire
