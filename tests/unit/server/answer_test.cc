// Answers in the shape of OpenAI's chats and completions.
#include "server/api/answer/answer.h"

#include <gtest/gtest.h>

#include "server/api/error.h"
#include "unit/server/apis.h"
#include "unit/server/http_client.h"

namespace quire {
namespace {

const TokenBytes kTokens = [](TokenId id) {
  return id == 1 ? std::string("\xe2\x82") : id == 2 ? std::string("\xac") : std::string(1, static_cast<char>(id));
};

ResponseHead head(Api api) {
  ResponseHead head;
  head.request.api = &api.definition();
  head.id = "id-1";
  head.request.model = "m\"odel";
  head.created = 17;
  head.prompt_tokens = 5;
  return head;
}

OutputToken token(TokenId id, float logprob = -1, std::vector<std::pair<TokenId, float>> top = {}) {
  return {.id = id, .logprob = logprob, .top_logprobs = std::move(top)};
}

Output piece(std::string text, std::vector<OutputToken> tokens = {}) {
  Output output;
  output.text = std::move(text);
  output.tokens = std::move(tokens);
  return output;
}

Output last(std::string text, FinishReason finish, int tokens) {
  Output output = piece(std::move(text));
  output.finish = finish;
  output.usage.prompt_tokens = 5;
  output.usage.completion_tokens = tokens;
  return output;
}

Json body_of(Answer& answer) {
  std::string out;
  answer.end(out);
  return Json::parse(out);
}
std::string ignored;  // whole bodies append nothing before their end

std::unique_ptr<Answer> make_answer(ResponseHead head) {
  const ApiDefinition& api = *head.request.api;
  return api.answer(std::move(head), kTokens);
}
std::unique_ptr<Answer> whole(ResponseHead head) { return make_answer(std::move(head)); }
std::unique_ptr<Answer> streamed(ResponseHead head) {
  head.request.stream = true;
  return make_answer(std::move(head));
}

TEST(Answer, WholeChat) {
  const auto body = whole(head(Api::kChat));
  body->add(0, piece("Hel"), ignored);
  body->add(0, last("lo", FinishReason::kStop, 3), ignored);
  EXPECT_EQ(body_of(*body),
            Json::parse(R"({"id": "id-1", "object": "chat.completion", "created": 17, "model": "m\"odel",
      "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello", "refusal": null}, "logprobs": null,
                   "finish_reason": "stop"}],
      "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8,
                "prompt_tokens_details": {"cached_tokens": 0}}})"));
}

TEST(Answer, WholeCompletionOfSeveralPromptsWithEcho) {
  ResponseHead h = head(Api::kCompletion);
  h.prompts = 2;
  h.request.sampling.n = 2;
  h.echo = {"A", "B"};
  const auto body = whole(h);
  for (int i = 0; i < 4; ++i)
    body->add(i, last(std::to_string(i), i == 2 ? FinishReason::kLength : FinishReason::kStop, 1), ignored);
  const Json json = body_of(*body);
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["choices"][1],
            Json::parse(R"({"index": 1, "text": "A1", "logprobs": null, "finish_reason": "stop"})"));
  EXPECT_EQ(json["choices"][2],
            Json::parse(R"({"index": 2, "text": "B2", "logprobs": null, "finish_reason": "length"})"));
  EXPECT_EQ(json["usage"]["completion_tokens"], 4);
}

TEST(Answer, StopReasonNamesWhatEndedTheAnswer) {
  for (const auto& [reason, token, expected] : std::vector<std::tuple<std::string, std::optional<TokenId>, Json>>{
           {"END", std::nullopt, "END"}, {"7", std::nullopt, "7"}, {"7", 7, 7}}) {
    const auto body = whole(head(Api::kChat));
    Output output = last("", FinishReason::kStop, 1);
    output.stop_reason = reason;
    output.stop_token = token;
    body->add(0, output, ignored);
    EXPECT_EQ(body_of(*body)["choices"][0]["stop_reason"], expected);
  }
}

TEST(Answer, ChatLogprobsHaveTheBytesOfHalfCharacters) {
  ResponseHead h = head(Api::kChat);
  h.request.sampling.logprobs = 0;
  const auto body = whole(h);
  body->add(0, piece("", {token(1, -0.25f, {{1, -0.25f}, {'x', -INFINITY}})}), ignored);
  body->add(0, piece("€", {token(2)}), ignored);
  body->add(0, last("", FinishReason::kStop, 2), ignored);
  EXPECT_EQ(body_of(*body)["choices"][0]["logprobs"], Json::parse(R"({"content": [
      {"token": "\ufffd", "logprob": -0.25, "bytes": [226, 130], "top_logprobs": [
          {"token": "\ufffd", "logprob": -0.25, "bytes": [226, 130]}, {"token": "x", "logprob": -9999.0, "bytes": [120]}]},
      {"token": "\ufffd", "logprob": -1.0, "bytes": [172], "top_logprobs": []}], "refusal": null})"));
}

TEST(Answer, CompletionLogprobsHaveOffsetsInCharacters) {
  ResponseHead h = head(Api::kCompletion);
  h.request.sampling.logprobs = 0;
  const auto body = whole(h);
  for (const TokenId id : {1, 2, int{'a'}}) body->add(0, piece("", {token(id, -1, {{'b', -0.5f}})}), ignored);
  body->add(0, last("", FinishReason::kStop, 3), ignored);
  EXPECT_EQ(body_of(*body)["choices"][0]["logprobs"],
            Json::parse(R"({"tokens": ["\ufffd", "\ufffd", "a"], "token_logprobs": [-1.0, -1.0, -1.0],
      "top_logprobs": [{"b": -0.5, "\ufffd": -1.0}, {"b": -0.5, "\ufffd": -1.0}, {"b": -0.5, "a": -1.0}], "text_offset": [0, 1, 1]})"));
  h.request.return_tokens_as_token_ids = true;
  const auto ids = whole(h);
  ids->add(0, piece("", {token('a')}), ignored);
  EXPECT_EQ(body_of(*ids)["choices"][0]["logprobs"]["tokens"][0], "token_id:97");
}

TEST(Answer, StreamedChat) {
  ResponseHead h = head(Api::kChat);
  h.request.include_usage = true;
  const auto stream = streamed(h);
  std::string out;
  stream->add(0, piece("", {token('x')}), out);  // a token without text yet: only the role is known
  EXPECT_EQ(events(out).size(), 1u);
  stream->add(0, piece("He\"\n\x01\\\u20ac"), out);
  stream->add(0, last("llo", FinishReason::kLength, 9), out);
  stream->end(out);
  const auto all = events(out);
  ASSERT_EQ(all.size(), 6u);
  const auto expect = [&](size_t i, const char* choices, const char* usage) {
    EXPECT_EQ(Json::parse(all[i]),
              Json::parse(std::string(R"({"id": "id-1", "object": "chat.completion.chunk", "created": 17,
        "model": "m\"odel", "choices": )") +
                          choices + R"(, "usage": )" + usage + "}"));
  };
  expect(0, R"([{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}])",
         "null");
  expect(1, R"([{"index": 0, "delta": {"content": "He\"\n\u0001\\\u20ac"}, "logprobs": null, "finish_reason": null}])",
         "null");
  expect(2, R"([{"index": 0, "delta": {"content": "llo"}, "logprobs": null, "finish_reason": null}])", "null");
  expect(3, R"([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": "length"}])", "null");
  expect(
      4, "[]",
      R"({"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 0}})");
  EXPECT_EQ(all[5], "[DONE]");
}

TEST(Answer, StreamedCompletionWithEchoAndLogprobs) {
  ResponseHead h = head(Api::kCompletion);
  h.echo = {"Pro"};
  h.request.sampling.logprobs = 0;
  h.request.continuous_usage_stats = true;
  const auto stream = streamed(h);
  std::string out;
  stream->add(0, piece("", {token('a')}), out);
  stream->add(0, piece("ab", {token('b')}), out);
  stream->add(0, last("", FinishReason::kStop, 2), out);
  stream->end(out);
  const auto all = events(out);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(Json::parse(all[0])["choices"][0]["text"], "Pro");
  EXPECT_EQ(Json::parse(all[1])["choices"][0]["text"], "");
  EXPECT_EQ(Json::parse(all[2])["choices"][0]["logprobs"]["text_offset"], Json::parse("[1]"));
  EXPECT_EQ(Json::parse(all[2])["usage"]["completion_tokens"], 2);
  EXPECT_EQ(Json::parse(all[3])["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(Json::parse(all[3])["object"], "text_completion");
  EXPECT_EQ(all[4], "[DONE]");
}

TEST(Answer, JsonStringsAreWhatTheLibraryWouldWrite) {
  std::string text = "é€👋 plain \x7f";
  for (char c = 0; c < 0x7f; ++c) text += c;
  std::string out;
  append_json_string(text, out);
  EXPECT_EQ(Json::parse(out), Json(text));
}

}  // namespace
}  // namespace quire
