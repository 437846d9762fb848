// Requests of every API as they are parsed.
#include "server/api/request/request.h"

#include <gtest/gtest.h>

#include <climits>

#include "server/api/error.h"
#include "server/api/request/fields.h"
#include "unit/server/parse_request.h"

namespace quire {
namespace {

TEST(ApiRequest, ReadsAMinimalChat) {
  const ApiRequest request = parse_chat(R"({"messages": [{"role": "user", "content": "Hi"}]})");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.sampling, SamplingParams{});
  EXPECT_FALSE(request.has_seed);
  EXPECT_FALSE(request.stream);
  EXPECT_TRUE(request.chat.add_generation_prompt);
  EXPECT_EQ(request.chat.messages, Json::parse(R"([{"role": "user", "content": "Hi"}])"));
  EXPECT_TRUE(request.without_effect.empty());
}

TEST(ApiRequest, LimitsACompletionTo16TokensByDefaultAsOpenAIDoes) {
  const ApiRequest request = parse_completion(R"({"model": "other", "prompt": "Hi"})");
  EXPECT_EQ(request.model, "other");
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_EQ(request.prompts, std::vector<Prompt>{"Hi"});
}

TEST(ApiRequest, ReadsEverySamplingParameter) {
  const std::string fields = R"("max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 40, "min_p": 0.125,
      "typical_p": 0.75, "top_n_sigma": 1.5, "xtc_probability": 0.5, "xtc_threshold": 0.25, "dynatemp_range": 0.25,
      "dynatemp_exponent": 2, "mirostat": 2, "mirostat_tau": 3, "mirostat_eta": 0.5, "dry_multiplier": 0.75,
      "dry_base": 2, "dry_allowed_length": 3, "dry_penalty_last_n": 100, "dry_sequence_breakers": ["\n", "user:"],
      "repetition_penalty": 1.5, "repeat_last_n": 64,
      "skip_special_tokens": false, "frequency_penalty": -2, "presence_penalty": 2.0,
      "logit_bias": {"3": -100, "99": 1.5},
      "allowed_token_ids": [4, 99], "bad_words": ["ugly", " \n"], "seed": 18446744073709551615, "stop": ["a", "bc"], "stop_token_ids": [0, 99],
      "include_stop_str_in_output": true, "ignore_eos": true, "min_tokens": 7, "n": 3, "best_of": 3, "stream": true,
      "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "return_tokens_as_token_ids": true, "return_token_ids": true,
      "truncate_prompt_tokens": 5)";
  const SamplingParams expected{.temperature = 0.5f,
                                .top_k = 40,
                                .top_p = 0.25f,
                                .min_p = 0.125f,
                                .typical_p = 0.75f,
                                .top_n_sigma = 1.5f,
                                .xtc_probability = 0.5f,
                                .xtc_threshold = 0.25f,
                                .dynatemp_range = 0.25f,
                                .dynatemp_exponent = 2,
                                .mirostat = 2,
                                .mirostat_tau = 3,
                                .mirostat_eta = 0.5f,
                                .repetition_penalty = 1.5f,
                                .frequency_penalty = -2,
                                .presence_penalty = 2,
                                .repeat_last_n = 64,
                                .dry_multiplier = 0.75f,
                                .dry_base = 2,
                                .dry_allowed_length = 3,
                                .dry_penalty_last_n = 100,
                                .dry_sequence_breakers = {"\n", "user:"},
                                .logit_bias = {{3, -100.0f}, {99, 1.5f}},
                                .allowed_token_ids = {4, 99},
                                .bad_words = {"ugly", " \n"},
                                .seed = UINT64_MAX,
                                .max_tokens = 7,
                                .min_tokens = 7,
                                .ignore_eos = true,
                                .stop = {"a", "bc"},
                                .stop_token_ids = {0, 99},
                                .include_stop_str_in_output = true,
                                .logprobs = {},
                                .skip_special_tokens = false,
                                .n = 3};
  for (const ApiRequest& request : {parse_chat(chat_with(fields)), parse_completion(completion_with(fields))}) {
    EXPECT_EQ(request.sampling, expected);
    EXPECT_TRUE(request.has_seed && request.stream && request.include_usage && request.continuous_usage_stats);
    EXPECT_TRUE(request.return_tokens_as_token_ids && request.return_token_ids);
    EXPECT_EQ(request.truncate_prompt_tokens, 5);
    EXPECT_TRUE(request.without_effect.empty());
  }
}

TEST(ApiRequest, TreatsNullAsAbsent) {
  for (const Api api : every_api()) {
    const SamplingParams expected = parse(api, body_with(api, "")).sampling;
    for (const std::string_view field : every_field()) {
      const std::string least = body_with(api, "");
      if (least.find('"' + std::string(field) + '"') != least.npos) continue;  // required
      const std::string text = '"' + std::string(field) + "\": null";
      EXPECT_EQ(parse(api, body_with(api, text)).sampling, expected) << api.path << ' ' << field;
    }
  }
}

TEST(ApiRequest, RefusesUnsupportedFieldsUnlessTheirValueIsNeutral) {
  for (const Api api : every_api()) {
    for (const RefusedField& field : api.definition().refused) {
      const std::string start = '"' + std::string(field.name) + "\": ";
      for (const char* value : {R"({"type": "json_object", "x": [1]})", "[[7]]"}) {
        const ApiError error = error_of(api, body_with(api, start + value));
        EXPECT_EQ(error.status, 400) << field.name;
        EXPECT_EQ(error.param, field.name);
        EXPECT_NE(std::string(error.what()).find("not supported"), std::string::npos);
      }
      for (const Json& neutral : Json::parse(field.neutral)) {
        EXPECT_NO_THROW(parse(api, body_with(api, start + neutral.dump()))) << field.name << ' ' << neutral;
      }
    }
  }
}

TEST(ApiRequest, RefusesAFieldOfAnotherApiAndNamesThatApi) {
  EXPECT_STREQ(chat_error(chat_with(R"("echo": true)")).what(),
               "echo: is not a parameter of /v1/chat/completions; /v1/completions takes it");
  EXPECT_STREQ(error_of(Api::kMessage, body_with(Api::kMessage, R"("n": 2)")).what(),
               "n: is not a parameter of /v1/messages; /v1/chat/completions takes it");
  EXPECT_STREQ(completion_error(R"({"messages": [{"role": "user", "content": "Hi"}]})").what(),
               "messages: is not a parameter of /v1/completions; /v1/chat/completions takes it");
}

TEST(ApiRequest, ReadsSchedulingFieldsOfEveryApiThatUsesTheEngine) {
  const std::string fields = R"("priority": -3, "cache_salt": "team", "timeout": 2.5)";
  for (const Api api : every_api()) {
    if (!api.definition().answer) continue;  // needs no engine
    const ApiRequest request = parse(api, body_with(api, fields));
    EXPECT_EQ(request.priority, -3) << api.path;
    EXPECT_EQ(request.cache_salt, "team");
    EXPECT_EQ(request.timeout, 2.5);
    const bool pools = api == Api::kEmbedding || api == Api::kOllamaEmbed || api == Api::kOllamaEmbeddings ||
                       api == Api::kRerank || api == Api::kScore;
    EXPECT_EQ(request.pooling, pools ? Pooling::kMean : Pooling::kNone);
  }
}

TEST(ApiRequest, ReadsPromptLogprobs) {
  for (const Api api : {Api::kChat, Api::kCompletion}) {
    const ApiRequest request = parse(api, body_with(api, R"("prompt_logprobs": 3, "max_tokens": 0)"));
    EXPECT_EQ(request.sampling.prompt_logprobs, 3);
    EXPECT_EQ(request.sampling.max_tokens, 0);
    EXPECT_TRUE(request.prompt_logprobs);
  }
  const ApiRequest scored = parse_completion(completion_with(R"("echo": true, "logprobs": 1, "max_tokens": 0)"));
  EXPECT_EQ(scored.sampling.prompt_logprobs, 1);
  EXPECT_FALSE(scored.prompt_logprobs);
  EXPECT_EQ(parse_completion(completion_with(R"("echo": true, "max_tokens": 0)")).sampling.prompt_logprobs, 0);
  EXPECT_EQ(parse_completion(completion_with(R"("echo": true)")).sampling.prompt_logprobs, std::nullopt);
}

TEST(ApiRequest, TreatsMinusOneAsNoLimitAndNoSeed) {
  for (const char* field : {"max_tokens", "n_predict"}) {
    const std::string fields = '"' + std::string(field) + "\": -1";
    EXPECT_EQ(parse_completion(completion_with(fields)).sampling.max_tokens, INT_MAX);
    EXPECT_EQ(parse_chat(chat_with(fields)).sampling.max_tokens, INT_MAX);
  }
  EXPECT_EQ(parse_chat(chat_with(R"("max_completion_tokens": -1, "max_tokens": 3)")).sampling.max_tokens, INT_MAX);
  EXPECT_EQ(parse(Api::kResponse, R"({"input": "Hi", "max_output_tokens": -1})").sampling.max_tokens, INT_MAX);
  EXPECT_EQ(parse_completion(completion_with(R"("n_predict": -1)")).sampling.max_tokens, INT_MAX);
  EXPECT_EQ(parse_completion(completion_with(R"("n_predict": 7)")).sampling.max_tokens, 7);
  EXPECT_FALSE(parse_chat(chat_with(R"("seed": -1)")).has_seed);
  EXPECT_EQ(parse_chat(chat_with(R"("seed": -2)")).sampling.seed, UINT64_MAX - 1);
}

TEST(ApiRequest, ReadsEmbeddingsTokenizeAndDetokenize) {
  const ApiRequest embedding = parse(
      Api::kEmbedding, R"({"input": ["a", [1, 2]], "encoding_format": "base64", "pooling": "last", "user": "u"})");
  EXPECT_EQ(embedding.prompts, (std::vector<Prompt>{"a", TokenIds{1, 2}}));
  EXPECT_TRUE(embedding.base64);
  EXPECT_EQ(embedding.pooling, Pooling::kLast);
  const ApiRequest tokenize =
      parse(Api::kTokenize, R"({"messages": [{"role": "user", "content": "a"}], "return_token_strs": true,
                          "add_generation_prompt": false})");
  EXPECT_TRUE(tokenize.return_token_strs);
  EXPECT_FALSE(tokenize.chat.add_generation_prompt);
  EXPECT_EQ(parse(Api::kDetokenize, R"({"tokens": []})").prompts, (std::vector<Prompt>{TokenIds{}}));
}

TEST(ApiRequest, TurnsAnthropicsMessagesIntoAChat) {
  const ApiRequest request = parse(Api::kMessage, R"({"max_tokens": 5, "stop_sequences": ["END"],
      "system": [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "brief"}],
      "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "assistant", "content": "Oh"}]})");
  EXPECT_EQ(request.chat.messages, Json::parse(R"([{"role": "system", "content": "Be\nbrief"},
      {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Oh"}])"));
  EXPECT_TRUE(request.chat.continue_final_message);
  EXPECT_FALSE(request.chat.add_generation_prompt);
  EXPECT_EQ(request.sampling.max_tokens, 5);
  EXPECT_EQ(request.sampling.stop, std::vector<std::string>{"END"});
  EXPECT_TRUE(parse(Api::kMessage, body_with(Api::kMessage, "")).chat.add_generation_prompt);
}

TEST(ApiRequest, TurnsItemsOfResponsesIntoAChat) {
  const ApiRequest request = parse(Api::kResponse, R"({"instructions": "Be brief", "max_output_tokens": 5, "input": [
      {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Hm"}]},
      {"role": "user", "content": "Hi"},
      {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
       "content": [{"type": "output_text", "text": "Oh", "annotations": []}]}]})");
  EXPECT_EQ(request.chat.messages, Json::parse(R"([{"role": "system", "content": "Be brief"},
      {"role": "developer", "content": "Hm"}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Oh"}])"));
  EXPECT_EQ(request.sampling.max_tokens, 5);
  EXPECT_EQ(parse(Api::kResponse, R"({"input": "Hi"})").chat.messages,
            Json::parse(R"([{"role": "user", "content": "Hi"}])"));
}

TEST(ApiRequest, ReadsChatsOwnFields) {
  EXPECT_EQ(parse_chat(chat_with(R"("logprobs": true)")).sampling.logprobs, 0);
  EXPECT_EQ(parse_chat(chat_with(R"("logprobs": true, "top_logprobs": 5)")).sampling.logprobs, 5);
  EXPECT_EQ(parse_chat(chat_with(R"("logprobs": false, "top_logprobs": 0)")).sampling.logprobs, std::nullopt);
  EXPECT_EQ(parse_chat(chat_with(R"("max_completion_tokens": 9, "max_tokens": 3)")).sampling.max_tokens, 9);
  EXPECT_FALSE(parse_chat(chat_with(R"("add_generation_prompt": false)")).chat.add_generation_prompt);
  const ApiRequest continued = parse_chat(chat_with(R"("continue_final_message": true)"));
  EXPECT_TRUE(continued.chat.continue_final_message);
  EXPECT_FALSE(continued.chat.add_generation_prompt);
  EXPECT_EQ(parse_chat(chat_with(R"("chat_template_kwargs": {"enable_thinking": false, "reasoning_effort": "low"},
                                    "reasoning_effort": "high")"))
                .chat.kwargs,
            Json::parse(R"({"enable_thinking": false, "reasoning_effort": "low"})"));
  EXPECT_EQ(parse_chat(chat_with(R"("reasoning_effort": "high", "chat_template_kwargs": {"reasoning_effort": "low"})"))
                .chat.kwargs,
            Json::parse(R"({"reasoning_effort": "low"})"));
  EXPECT_EQ(parse_chat(chat_with(R"("documents": [{"text": "d"}])")).chat.documents.size(), 1u);
}

TEST(ApiRequest, AcceptsFieldsThatOtherServersTakeAsMeant) {
  EXPECT_TRUE(parse_chat(chat_with(R"("stop": "")")).sampling.stop.empty());
  EXPECT_TRUE(parse_chat(chat_with(R"("stream_options": {"include_usage": true})")).include_usage);
  EXPECT_EQ(parse_chat(chat_with(R"("verbosity": "low")")).chat.kwargs, Json::parse(R"({"verbosity": "low"})"));
  EXPECT_NO_THROW(parse(Api::kEmbedding, R"({"input": "a", "dimensions": 16})"));
}

TEST(ApiRequest, ReadsResponsesOwnFields) {
  const ApiRequest request = parse(Api::kResponse, R"({"input": [
      {"type": "reasoning", "id": "rs_1", "summary": []}, {"role": "user", "content": "Hi"}],
      "reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "text"}, "verbosity": "high"},
      "truncation": "auto", "store": true, "top_logprobs": 2,
      "include": ["message.output_text.logprobs", "reasoning.encrypted_content"]})");
  EXPECT_EQ(request.chat.messages, Json::parse(R"([{"role": "user", "content": "Hi"}])"));
  EXPECT_EQ(request.chat.kwargs, Json::parse(R"({"reasoning_effort": "low", "verbosity": "high"})"));
  EXPECT_EQ(request.sampling.logprobs, 2);
  EXPECT_EQ(request.without_effect, (std::vector<std::string>{"reasoning.summary", "truncation", "store",
                                                              "include: reasoning.encrypted_content"}));
}

TEST(ApiRequest, ReadsMessagesOwnFields) {
  const ApiRequest request = parse(Api::kMessage, R"({"max_tokens": 5,
      "thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low"},
      "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
      "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [
          {"type": "thinking", "thinking": "Hm", "signature": "x"}, {"type": "text", "text": "Oh"}]},
          {"role": "user", "content": "?"}]})");
  EXPECT_EQ(request.chat.messages[1]["content"], "Oh");
  EXPECT_EQ(request.chat.kwargs,
            Json::parse(R"({"enable_thinking": true, "thinking": true, "reasoning_effort": "low"})"));
  EXPECT_EQ(request.max_reasoning_tokens, 1024);
  EXPECT_EQ(request.without_effect, (std::vector<std::string>{"context_management"}));
  EXPECT_EQ(parse(Api::kMessage, body_with(Api::kMessage, R"("thinking": {"type": "disabled"})")).chat.kwargs,
            Json::parse(R"({"enable_thinking": false, "thinking": false})"));
}

TEST(ApiRequest, ParsesSpecialTokensInPromptsAndNotInMessagesByDefault) {
  EXPECT_FALSE(parse_chat(chat_with("")).chat.parse_special);
  EXPECT_TRUE(parse_chat(chat_with(R"("parse_special": true)")).chat.parse_special);
  EXPECT_EQ(parse_completion(completion_with("")).parse_special, std::nullopt);
  EXPECT_EQ(parse_completion(completion_with(R"("parse_special": false)")).parse_special, false);
}

TEST(ApiRequest, StartsFromTheModelsSamplingDefaults) {
  const std::vector<std::string> models = {"m"};
  const ApiLimits limits{.models = models,
                         .vocab_size = 100,
                         .max_model_len = 2048,
                         .sampling = {.temperature = 0.6f, .top_p = 0.95f, .top_k = 20}};
  const ApiRequest request = parse_api_request(Api::kChat, chat_with(R"("top_p": 0.5)"), limits);
  EXPECT_EQ(request.sampling.temperature, 0.6f);
  EXPECT_EQ(request.sampling.top_p, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 20);
}

TEST(ApiRequest, ReadsCompletionsOwnFields) {
  EXPECT_EQ(parse_completion(completion_with(R"("logprobs": 5)")).sampling.logprobs, 5);
  EXPECT_TRUE(parse_completion(completion_with(R"("echo": true)")).echo);
  EXPECT_FALSE(parse_completion(completion_with(R"("add_special_tokens": false)")).add_special_tokens);
}

TEST(ApiRequest, ReadsEveryKindOfPrompt) {
  const auto prompts = [](const std::string& prompt) {
    return parse_completion(R"({"prompt": )" + prompt + "}").prompts;
  };
  EXPECT_EQ(prompts(R"("")"), std::vector<Prompt>{""});
  EXPECT_EQ(prompts(R"(["a", "b"])"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1, 2, 3]"), (std::vector<Prompt>{TokenIds{1, 2, 3}}));
  EXPECT_EQ(prompts("[[1], [2, 3]]"), (std::vector<Prompt>{TokenIds{1}, TokenIds{2, 3}}));
  EXPECT_EQ(prompts(R"(["a", [2, 3]])"), (std::vector<Prompt>{"a", TokenIds{2, 3}}));
  const MixedPrompt mixed{TokenIds{1, 2}, "a", TokenIds{3}};
  EXPECT_EQ(prompts(R"([1, 2, "a", 3])"), std::vector<Prompt>{mixed});
  EXPECT_EQ(prompts(R"([[1, 2, "a", 3], "b"])"), (std::vector<Prompt>{mixed, "b"}));
  EXPECT_EQ(prompts(R"({"prompt_string": "a", "multimodal_data": []})"), std::vector<Prompt>{"a"});
  EXPECT_EQ(prompts(R"([{"prompt_string": "a"}, {"text": "b"}])"), (std::vector<Prompt>{"a", "b"}));
}

TEST(ApiRequest, ConvertsMessagesToTheShapeThatTemplatesExpect) {
  const ApiRequest request = parse_chat(R"({"messages": [
      {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"]},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
         "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": [2]}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "3"},
      {"role": "assistant"},
      {"role": "user", "name": "Bob", "content": ""}]})");
  EXPECT_EQ(request.chat.messages, Json::parse(R"([
      {"role": "system", "content": "a\nb\nc"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function",
         "function": {"name": "f", "arguments": {"z": 1, "a": [2]}}}]},
      {"role": "tool", "tool_call_id": "1", "content": "3"},
      {"role": "assistant", "content": ""},
      {"role": "user", "name": "Bob", "content": ""}])"));
}

TEST(ApiRequest, ReadsLoneSurrogatesAsReplacementCharacters) {
  const ApiRequest request = parse_chat(R"({"messages": [{"role": "user", "content": "log: \ud83d cut", "\udc00": 1}],
      "tools": [{"function": {"name": "f", "description": "\ud83d\ude00 \ude00"}}]
})");
  EXPECT_EQ(request.chat.messages[0]["content"], "log: \uFFFD cut");
  EXPECT_TRUE(request.chat.messages[0].contains("\uFFFD"));
  EXPECT_EQ(request.tools[0]["function"]["description"], "😀 \uFFFD");
}

TEST(ApiRequest, ListsFieldsWithoutEffect) {
  const ApiRequest request = parse_chat(chat_with(R"("user": "u", "metadata": {"a": "b"}, "frobnicate": [1],
      "stream": true, "stream_options": {"include_obfuscation": true})"));
  EXPECT_EQ(request.without_effect,
            (std::vector<std::string>{"user", "metadata", "frobnicate", "stream_options.include_obfuscation"}));
}

TEST(ApiRequest, RefusesAnUnknownModelWith404) {
  const ApiError error = chat_error(chat_with(R"("model": "gpt-5")"));
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.param, "model");
}

TEST(ApiRequest, TakesTheLastOfEqualKeys) {
  EXPECT_EQ(parse_chat(chat_with(R"("n": 2, "n": 3)")).sampling.n, 3);
  std::string many = R"("n": 2)";
  for (int i = 0; i < 40; ++i) many += ", \"x" + std::to_string(i) + "\": 1";
  EXPECT_EQ(parse_chat(chat_with(many + R"(, "n": 4, "x3": 2)")).sampling.n, 4);
  EXPECT_EQ(parse_chat(chat_with(many + R"(, "x3": 2)")).without_effect.size(), 40u);
}

TEST(ApiRequest, WritesErrorsInOpenAIsShape) {
  const ApiError error = chat_error(chat_with(R"("temperature": -1)"));
  EXPECT_EQ(Json::parse(error_body(error)),
            Json::parse(R"({"error": {"message": "temperature: expected a number from 0 to 100, found -1",
      "type": "invalid_request_error", "param": "temperature", "code": null}})"));
  EXPECT_EQ(Json::parse(error_body(ApiError(500, "broken \xff text", "server_error")))["error"]["param"], nullptr);
}

}  // namespace
}  // namespace quire
