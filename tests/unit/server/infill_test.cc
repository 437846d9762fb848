// Fill in the middle: `suffix` of completions, and llama.cpp's /infill.
#include <gtest/gtest.h>

#include "unit/server/parse_request.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

std::string infill_with(const std::string& fields) { return body_with(Api::kInfill, fields); }

std::string prompt_of(const RunningServer& running) {
  return running.model.decode(running.model.last_request().prompt);
}

TEST(InfillRequests, JoinWhatIsTypedToThePrefix) {
  const ApiRequest request = parse(Api::kInfill, infill_with(R"("prompt": " there", "n_predict": 7,
      "input_extra": [{"filename": "a.c", "text": "int a;", "time": 3}, {"text": "b"}],
      "samplers": ["top_k", "infill"], "cache_prompt": true, "t_max_predict_ms": 500)"));
  EXPECT_EQ(request.prompts, std::vector<Prompt>{"Hi there"});
  EXPECT_EQ(request.suffix, "!");
  ASSERT_EQ(request.infill_files.size(), 2u);
  EXPECT_EQ(request.infill_files[0].name, "a.c");
  EXPECT_EQ(request.infill_files[1].text, "b");
  EXPECT_EQ(request.sampling.max_tokens, 7);
  EXPECT_EQ(request.without_effect, (std::vector<std::string>{"samplers", "cache_prompt", "t_max_predict_ms"}));
  EXPECT_EQ(parse(Api::kInfill, infill_with("")).sampling.max_tokens, std::nullopt);
}

TEST(InfillRequests, OfBadFormGetA400ThatNamesTheField) {
  const auto param = [](const std::string& fields) { return error_of(Api::kInfill, infill_with(fields)).param; };
  EXPECT_EQ(error_of(Api::kInfill, R"({"input_suffix": "b"})").param, "input_prefix");
  EXPECT_EQ(error_of(Api::kInfill, R"({"input_prefix": "a"})").param, "input_suffix");
  EXPECT_EQ(error_of(Api::kInfill, R"({"input_prefix": "a", "input_suffix": null})").param, "input_suffix");
  EXPECT_EQ(param(R"("prompt": ["a"])"), "prompt");
  EXPECT_EQ(param(R"("input_extra": "a")"), "input_extra");
  EXPECT_EQ(param(R"("input_extra": [{"filename": "a"}])"), "input_extra[0].text");
  EXPECT_EQ(param(R"("input_extra": [{"filename": 5, "text": ""}])"), "input_extra[0].filename");
  EXPECT_EQ(param(R"("echo": true)"), "echo");
}

TEST(InfillRequests, OfCompletionsNeedATextAndNothingThatTheSuffixRulesOut) {
  EXPECT_EQ(parse_completion(completion_with(R"("suffix": "!")")).suffix, "!");
  EXPECT_EQ(parse_completion(completion_with(R"("suffix": "")")).suffix, std::nullopt) << "as clients send it";
  EXPECT_EQ(completion_error(R"({"prompt": [1, 2], "suffix": "!"})").param, "suffix");
  for (const char* field : {"echo", "parse_special"}) {
    EXPECT_EQ(completion_error(completion_with(R"("suffix": "!", ")" + std::string(field) + "\": true")).param, field);
  }
  EXPECT_EQ(completion_error(completion_with(R"("suffix": "!", "truncate_prompt_tokens": 3)")).param,
            "truncate_prompt_tokens");
  EXPECT_EQ(chat_error(chat_with(R"("suffix": "!")")).param, "suffix");
}

TEST(Infill, IsRefusedByAModelWithoutTokensForIt) {
  RunningServer running;
  HttpClient client(running.port());
  const HttpAnswer completion = client.post(kCompletionPath, R"({"prompt": "a", "suffix": "b"})");
  EXPECT_EQ(completion.status, 400);
  EXPECT_EQ(completion.error_param(), "suffix");
  EXPECT_EQ(client.post("/infill", infill_with("")).error_param(), "input_suffix");
  const HttpAnswer generate = client.post("/api/generate", R"({"prompt": "a", "suffix": "b"})");
  EXPECT_EQ(generate.status, 400);
  EXPECT_EQ(generate.json(), Json::parse(R"({"error":
      "suffix: this model cannot fill in the middle: its vocabulary has no tokens for it"})"));
  EXPECT_EQ(running.model.submitted(), 0u);
}

TEST(Infill, OfCompletionsGivesEachPromptTheSuffix) {
  RunningServer running;
  running.model.infills = true;
  HttpClient client(running.port());
  const Json json = client.post(kCompletionPath, R"({"prompt": ["a", "b"], "suffix": "!"})").json();
  EXPECT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][0]["text"], "Hello");
  EXPECT_EQ(prompt_of(running), "<b_!>");
  EXPECT_EQ(running.model.last_sampling().stop_token_ids, TokenIds{'$'});
  client.post(kCompletionPath, R"({"prompt": "a", "suffix": "!", "ignore_eos": true, "max_tokens": 1})");
  EXPECT_TRUE(running.model.last_sampling().stop_token_ids.empty());
}

TEST(Infill, HasLlamaCppsShape) {
  RunningServer running;
  running.model.infills = true;
  running.model.cached_tokens = 2;
  HttpClient client(running.port());
  Json json = client.post("/infill", infill_with(R"("input_extra": [{"filename": "f", "text": "t"}])")).json();
  EXPECT_EQ(prompt_of(running), "f:t|<Hi_!>");
  EXPECT_EQ(json["timings"]["prompt_n"], 8);
  EXPECT_EQ(json["timings"]["predicted_n"], 5);
  EXPECT_NEAR(json["timings"]["predicted_ms"].get<double>(), 1, 1e-6);
  EXPECT_NEAR(json["timings"]["predicted_per_second"].get<double>(), 5000, 1e-3);
  json.erase("timings");
  json.erase("generation_settings");
  EXPECT_EQ(json, Json::parse(R"({"index": 0, "id_slot": -1, "stop": true, "model": "scripted",
      "tokens_predicted": 5, "tokens_evaluated": 10, "tokens_cached": 2, "has_new_line": false, "truncated": false,
      "stop_type": "eos", "stopping_word": "", "content": "Hello", "tokens": []})"));
  // As llama.vim asks for it.
  const Json few =
      client.post("/infill", infill_with(R"("response_fields": ["content", "timings/prompt_n", "x/y"])")).json();
  EXPECT_EQ(few, Json::parse(R"({"content": "Hello", "timings/prompt_n": 4})"));
  EXPECT_EQ(client.post("/infill", infill_with(R"("n_predict": 2)")).json()["stop_type"], "limit");
}

TEST(Infill, StreamsEvents) {
  RunningServer running;
  running.model.infills = true;
  HttpClient client(running.port());
  const HttpAnswer answer = client.post("/infill", infill_with(R"("stream": true)"));
  EXPECT_TRUE(answer.headers.at("content-type").starts_with("text/event-stream"));
  std::string text;
  const auto all = events(answer.body);
  for (const std::string& event : all) {
    const Json json = Json::parse(event);
    text += json["content"].get<std::string>();
    EXPECT_EQ(json["stop"], &event == &all.back());
  }
  EXPECT_EQ(text, "Hello");
  EXPECT_EQ(Json::parse(all.back())["tokens_predicted"], 5);
}

// Editors send the files around the cursor before anybody types.
TEST(Infill, OfNoTokensOnlyFillsTheCache) {
  RunningServer running;
  running.model.infills = true;
  HttpClient client(running.port());
  const Json json = client.post("/infill", infill_with(R"("n_predict": 0)")).json();
  EXPECT_EQ(json["content"], "");
  EXPECT_EQ(json["tokens_predicted"], 0);
  EXPECT_EQ(running.model.last_sampling().max_tokens, 0);
}

}  // namespace
}  // namespace quire
