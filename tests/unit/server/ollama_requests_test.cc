// Requests of Ollama's clients as they are parsed.
#include <gtest/gtest.h>

#include <climits>

#include "unit/server/parse_request.h"

namespace quire {
namespace {

std::string ollama_chat(const std::string& fields) { return body_with(Api::kOllamaChat, fields); }
std::string generate(const std::string& fields) { return body_with(Api::kOllamaGenerate, fields); }
ApiRequest parse_ollama(const std::string& fields) { return parse(Api::kOllamaChat, ollama_chat(fields)); }
std::string chat_param(const std::string& fields) { return error_of(Api::kOllamaChat, ollama_chat(fields)).param; }
std::string generate_param(const std::string& fields) { return error_of(Api::kOllamaGenerate, generate(fields)).param; }

TEST(OllamaRequests, StreamUnlessToldOtherwise) {
  EXPECT_TRUE(parse_ollama("").stream);
  EXPECT_FALSE(parse_ollama(R"("stream": false)").stream);
  EXPECT_TRUE(parse(Api::kOllamaGenerate, generate("")).stream);
  EXPECT_FALSE(parse(Api::kOllamaEmbed, body_with(Api::kOllamaEmbed, "")).stream);
}

TEST(OllamaRequests, NameTheModelWithOrWithoutItsTag) {
  EXPECT_EQ(parse_ollama(R"("model": "other")").model, "other");
  EXPECT_EQ(parse_ollama(R"("model": "other:latest")").model, "other:latest") << "as the answer repeats it";
  EXPECT_EQ(parse_ollama("").model, "m");
  for (const char* name : {"other:7b", "other:latest:latest", ":latest", ""}) {
    const ApiError error = error_of(Api::kOllamaChat, ollama_chat(R"("model": ")" + std::string(name) + '"'));
    EXPECT_EQ(error.status, 404) << name;
    EXPECT_NE(std::string(error.what()).find("not found"), std::string::npos) << "which clients look for";
  }
  EXPECT_EQ(chat_error(chat_with(R"("model": "m:latest")")).status, 404) << "other APIs have no tags";
}

TEST(OllamaRequests, TakeEveryOption) {
  const ApiRequest request = parse_ollama(R"("options": {"temperature": 0.5, "top_k": 40, "top_p": 0.25, "min_p": 0.125,
      "typical_p": 0.75, "repeat_penalty": 1.5, "repeat_last_n": 64, "presence_penalty": 2, "frequency_penalty": -2,
      "seed": 7, "stop": ["a", "b"], "num_predict": 9, "num_ctx": 2048, "mirostat": 0,
      "num_keep": 4, "num_thread": 8, "num_gpu": 1, "num_batch": 512, "use_mmap": true}, "keep_alive": "5m")");
  EXPECT_EQ(request.sampling, (SamplingParams{.temperature = 0.5f,
                                              .top_k = 40,
                                              .top_p = 0.25f,
                                              .min_p = 0.125f,
                                              .typical_p = 0.75f,
                                              .repetition_penalty = 1.5f,
                                              .frequency_penalty = -2,
                                              .presence_penalty = 2,
                                              .repeat_last_n = 64,
                                              .seed = 7,
                                              .max_tokens = 9,
                                              .stop = {"a", "b"}}));
  EXPECT_TRUE(request.has_seed);
  EXPECT_EQ(request.without_effect,
            (std::vector<std::string>{"options.num_keep", "options.num_thread", "options.num_gpu", "options.num_batch",
                                      "options.use_mmap"}));
  EXPECT_EQ(request.keep_alive, KeepAlive(std::chrono::minutes(5)));
}

TEST(OllamaRequests, HaveNoLimitUnlessTheOptionIsPositive) {
  for (const char* number : {"0", "-1", "-2"}) {
    EXPECT_EQ(parse_ollama(R"("options": {"num_predict": )" + std::string(number) + "}").sampling.max_tokens, INT_MAX);
  }
  EXPECT_EQ(parse_ollama("").sampling.max_tokens, std::nullopt);
}

TEST(OllamaRequests, RefuseOptionsThatTheyCannotHonour) {
  for (const auto& [option, path] : {std::pair{R"("temperature": -1)", "options.temperature"},
                                     {R"("temperature": "hot")", "options.temperature"},
                                     {R"("num_predict": -3)", "options.num_predict"},
                                     {R"("num_ctx": -1)", "options.num_ctx"},
                                     {R"("grammar": 5)", "options.grammar"},
                                     {R"("output_schema": {"type": "string"})", "options.output_schema"},
                                     {R"("mirostat": 3)", "options.mirostat"},
                                     {R"("stop": [5])", "options.stop[0]"},
                                     {R"("max_tokens": 5)", "options.max_tokens"},
                                     {R"("stream": true)", "options.stream"}}) {
    EXPECT_EQ(chat_param(R"("options": {)" + std::string(option) + "}"), path);
  }
  EXPECT_EQ(chat_param(R"("options": [5])"), "options");
  EXPECT_STREQ(error_of(Api::kOllamaChat, ollama_chat(R"("temperature": 1)")).what(),
               "temperature: belongs into options");
  EXPECT_STREQ(chat_error(chat_with(R"("num_ctx": 5)")).what(),
               "num_ctx: is not a parameter of /v1/chat/completions; options of /api/chat takes it");
}

// Programs for Ollama send the same number to every server.
TEST(OllamaRequests, GetTheServersContextIfTheyAskForALargerOne) {
  for (const char* number : {"0", "1", "512.0", "2048"})
    EXPECT_EQ(parse_ollama(R"("options": {"num_ctx": )" + std::string(number) + "}").larger_context, 0);
  EXPECT_EQ(parse_ollama(R"("options": {"num_ctx": 32768})").larger_context, 32768);
}

TEST(OllamaRequests, TakeMessagesOfEveryRole) {
  const ApiRequest request = parse(Api::kOllamaChat, R"({"messages": [
      {"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi", "images": []},
      {"role": "assistant", "content": "", "thinking": "Hm", "tool_calls": [
        {"function": {"index": 0, "name": "weather", "arguments": {"city": "Oslo"}}},
        {"id": "x", "function": {"name": "time", "arguments": {}}}]},
      {"role": "tool", "tool_name": "time", "content": "noon"}, {"role": "tool", "content": "cold"},
      {"role": "tool", "tool_name": "other", "content": "?"}]})");
  EXPECT_EQ(request.chat.messages, Json::parse(R"([{"role": "system", "content": "Be brief"},
      {"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "", "reasoning_content": "Hm", "tool_calls": [
        {"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}, "id": "call_1"},
        {"type": "function", "function": {"name": "time", "arguments": {}}, "id": "x"}]},
      {"role": "tool", "content": "noon", "tool_call_id": "x", "name": "time"},
      {"role": "tool", "content": "cold", "tool_call_id": "call_1", "name": "weather"},
      {"role": "tool", "content": "?", "name": "other"}])"));
  EXPECT_FALSE(request.chat.continue_final_message);
}

TEST(OllamaRequests, ContinueATrailingAnswer) {
  const auto continues = [](const char* last) {
    const ApiRequest request =
        parse(Api::kOllamaChat, R"({"messages": [{"role": "user", "content": "Hi"}, )" + std::string(last) + "]}");
    EXPECT_NE(request.chat.continue_final_message, request.chat.add_generation_prompt);
    return request.chat.continue_final_message;
  };
  EXPECT_TRUE(continues(R"({"role": "assistant", "content": "Oh"})"));
  EXPECT_FALSE(continues(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})"));
  EXPECT_FALSE(continues(R"({"role": "user", "content": "?"})"));
}

TEST(OllamaRequests, WithBadMessagesGetA400ThatNamesTheField) {
  const auto param = [](const char* message) {
    return error_of(Api::kOllamaChat, R"({"messages": [)" + std::string(message) + "]}").param;
  };
  EXPECT_EQ(param("5"), "messages[0]");
  EXPECT_EQ(param(R"({"content": "a"})"), "messages[0].role");
  EXPECT_EQ(param(R"({"role": "wizard", "content": "a"})"), "messages[0].role");
  EXPECT_EQ(param(R"({"role": "user"})"), "messages[0].content");
  EXPECT_EQ(param(R"({"role": "user", "content": [{"type": "text", "text": "a"}]})"), "messages[0].content");
  EXPECT_EQ(param(R"({"role": "user", "content": "a", "images": ["iVBO"]})"), "messages[0].images");
  EXPECT_EQ(param(R"({"role": "assistant", "tool_calls": [{"function": {}}]})"),
            "messages[0].tool_calls[0].function.name");
}

TEST(OllamaRequests, TakeAFormat) {
  const auto source = [](const char* format) {
    return parse_ollama(R"("format": )" + std::string(format)).constraint_source;
  };
  EXPECT_FALSE(source("\"\""));
  EXPECT_EQ(source("\"json\"")->kind, ConstraintSource::Kind::kJsonObject);
  EXPECT_EQ(source(R"({"type": "object"})")->kind, ConstraintSource::Kind::kJsonSchema);
  EXPECT_EQ(source(R"({"type": "object"})")->text, R"({"type":"object"})");
  EXPECT_EQ(chat_param(R"("format": "xml")"), "format");
  EXPECT_EQ(chat_param(R"("format": true)"), "format");
}

TEST(OllamaRequests, SetTheVariablesOfThinkingTemplates) {
  const auto kwargs = [](const char* think) { return parse_ollama(R"("think": )" + std::string(think)).chat.kwargs; };
  EXPECT_EQ(kwargs("false"), Json::parse(R"({"enable_thinking": false, "thinking": false})"));
  EXPECT_EQ(kwargs("true"), Json::parse(R"({"enable_thinking": true, "thinking": true})"));
  EXPECT_EQ(kwargs("\"low\""),
            Json::parse(R"({"reasoning_effort": "low", "enable_thinking": true, "thinking": true})"));
  EXPECT_TRUE(parse_ollama(R"("think": "high")").think);
  EXPECT_FALSE(parse_ollama(R"("think": false)").think);
  EXPECT_EQ(chat_param(R"("think": "hard")"), "think");
  EXPECT_EQ(chat_param(R"("think": 1)"), "think");
}

TEST(OllamaRequests, WithoutAQuestionOnlyLoad) {
  EXPECT_TRUE(parse(Api::kOllamaChat, "{}").only_loads);
  EXPECT_TRUE(parse(Api::kOllamaChat, R"({"messages": [], "keep_alive": 0})").only_loads);
  EXPECT_TRUE(parse(Api::kOllamaGenerate, R"({"model": "m", "system": "Be"})").only_loads);
  EXPECT_TRUE(parse(Api::kOllamaGenerate, R"({"prompt": ""})").only_loads);
  EXPECT_FALSE(parse(Api::kOllamaGenerate, R"({"suffix": "end"})").only_loads);
  EXPECT_FALSE(parse_ollama("").only_loads);
}

TEST(OllamaRequests, OfPromptsAreChatsUnlessRaw) {
  const ApiRequest chat = parse(Api::kOllamaGenerate, generate(R"("system": "Be brief", "context": [], "images": [])"));
  EXPECT_EQ(chat.chat.messages,
            Json::parse(R"([{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}])"));
  EXPECT_TRUE(chat.prompts.empty());
  const ApiRequest raw = parse(Api::kOllamaGenerate, generate(R"("raw": true)"));
  EXPECT_EQ(raw.prompts, std::vector<Prompt>{"Hi"});
  EXPECT_TRUE(raw.chat.messages.empty());
  // What Ollama's Python client sends by default.
  const ApiRequest defaults = parse(Api::kOllamaGenerate, generate(R"("suffix": "", "system": "", "template": "")"));
  EXPECT_EQ(defaults.chat.messages, Json::parse(R"([{"role": "user", "content": "Hi"}])"));
  const ApiRequest infill = parse(Api::kOllamaGenerate, generate(R"("suffix": "!")"));
  EXPECT_EQ(infill.prompts, std::vector<Prompt>{"Hi"});
  EXPECT_EQ(infill.suffix, "!");
  EXPECT_EQ(generate_param(R"("raw": true, "system": "Be")"), "system");
  EXPECT_EQ(generate_param(R"("raw": true, "suffix": "!")"), "suffix");
  EXPECT_EQ(generate_param(R"("suffix": "!", "system": "Be")"), "system");
  EXPECT_EQ(generate_param(R"("template": "{{ .Prompt }}")"), "template");
  EXPECT_EQ(generate_param(R"("context": [1, 2])"), "context");
  EXPECT_EQ(generate_param(R"("images": ["iVBO"])"), "images");
}

TEST(OllamaRequests, OfEmbeddingsTruncateUnlessToldOtherwise) {
  const ApiRequest request = parse(Api::kOllamaEmbed, R"({"input": ["a", "b"], "options": {"num_ctx": 64}})");
  EXPECT_EQ(request.prompts, (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(request.truncate_prompt_tokens, 2048);
  EXPECT_TRUE(request.truncate_end);
  EXPECT_EQ(parse(Api::kOllamaEmbed, R"({"input": "a", "truncate": false})").truncate_prompt_tokens, std::nullopt);
  EXPECT_EQ(parse(Api::kOllamaEmbeddings, R"({"prompt": "a"})").prompts, std::vector<Prompt>{"a"});
  EXPECT_EQ(error_of(Api::kOllamaEmbed, "{}").param, "input");
  EXPECT_EQ(error_of(Api::kOllamaEmbeddings, "{}").param, "prompt");
  EXPECT_EQ(error_of(Api::kOllamaEmbed, R"({"input": "a", "dimensions": 8})").param, "dimensions");
}

}  // namespace
}  // namespace quire
