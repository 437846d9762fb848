// Bad requests: each gets a 400 that names the field.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <random>

#include "server/api/request/fields.h"
#include "unit/server/parse_request.h"

namespace quire {
namespace {

struct Bad {
  const char* field;  // what the error must name
  std::vector<const char*> values;
};

// Fields with values of a wrong type or out of range.
const std::vector<Bad> kBadValues = {
    {"model", {"1", "[]", "{}", "true"}},
    {"max_tokens", {"0", "-2", "1.5", "\"7\"", "[7]", "true", "2147483648", "1e30", "18446744073709551615"}},
    {"temperature", {"-0.1", "101", "\"hot\"", "[]", "{}", "false", "-1e300"}},
    {"top_p", {"-0.1", "1.01", "\"1\"", "[1]", "true"}},
    {"top_k", {"-2", "0.5", "\"1\"", "{}", "true", "99999999999"}},
    {"min_p", {"-1", "2", "\"0\"", "[]"}},
    {"typical_p", {"-1", "1.5", "\"0\""}},
    {"top_n_sigma", {"-1.5", "1001", "\"1\"", "[]"}},
    {"xtc_probability", {"-0.1", "1.1", "\"0\"", "true"}},
    {"xtc_threshold", {"-0.1", "1.1", "\"0\"", "{}"}},
    {"dynatemp_range", {"-0.1", "101", "\"0\""}},
    {"dynatemp_exponent", {"-0.1", "101", "\"1\""}},
    {"mirostat", {"-1", "3", "1.5", "true", "\"2\""}},
    {"mirostat_tau", {"-1", "101", "\"5\""}},
    {"mirostat_eta", {"-0.1", "1.1", "\"0\""}},
    {"dry_multiplier", {"-1", "101", "\"0\"", "[]"}},
    {"dry_base", {"0.9", "101", "\"2\""}},
    {"dry_allowed_length", {"0", "-1", "1.5", "\"2\"", "2147483648"}},
    {"dry_penalty_last_n", {"-2", "1.5", "\"1\""}},
    {"dry_sequence_breakers", {"1", "\"a\"", "{}", "[\"\"]", "[1]", "[null]", "[[\"a\"]]", "true"}},
    {"repetition_penalty", {"0", "-1", "101", "\"1\"", "[]"}},
    {"repeat_last_n", {"-2", "1.5", "\"x\""}},
    {"frequency_penalty", {"-2.1", "2.1", "\"0\"", "{}"}},
    {"presence_penalty", {"-2.1", "2.1", "\"0\"", "{}"}},
    {"logit_bias",
     {"[1]", "[[1]]", "[{\"a\": 1, \"b\": 2}]", "[[1, true]]", "[[\"a\", 1]]", "[[100, 1]]", "1", "\"a\"", "{\"x\": 1}",
      "{\"100\": 1}", "{\"-1\": 1}", "{\"1.0\": 1}", "{\"1\": 101}", "{\"1\": -101}", "{\"1\": \"a\"}", "{\"\": 1}",
      "{\"1 \": 1}", "{\"99999999999999\": 1}", "{\"1\": null}"}},
    {"seed", {"\"1\"", "1.5", "[]", "1e300", "true"}},
    {"stop", {"1", "{}", "[\"\"]", "[1]", "[[\"a\"]]", "true", "[null]"}},
    {"stop_token_ids", {"1", "\"a\"", "[100]", "[-1]", "[1.5]", "[\"1\"]", "{}", "[[1]]"}},
    {"allowed_token_ids", {"[]", "1", "\"a\"", "[100]", "[-1]", "[1.5]", "[\"1\"]", "{}", "[[1]]", "[1, 100]"}},
    {"bad_words", {"1", "\"a\"", "{}", "[\"\"]", "[1]", "[null]", "[[\"a\"]]", "true"}},
    {"include_stop_str_in_output", {"1", "\"true\"", "[]"}},
    {"ignore_eos", {"1", "\"true\"", "{}"}},
    {"min_tokens", {"-1", "1.5", "\"0\"", "[]"}},
    {"n", {"0", "-1", "129", "1.5", "\"1\"", "[1]"}},
    {"best_of", {"0", "2", "129", "\"1\""}},
    {"stream", {"1", "\"true\"", "[]", "{}"}},
    {"stream_options", {"1", "[1]", "true"}},
    {"return_tokens_as_token_ids", {"1", "\"x\""}},
    {"return_token_ids", {"1", "\"x\""}},
    {"truncate_prompt_tokens", {"0", "-2", "1.5", "\"1\""}},
    {"skip_special_tokens", {"1", "\"no\"", "[]"}},
    {"prompt_logprobs", {"-1", "1025", "true", "\"1\"", "1.5"}},
    {"priority", {"1.5", "\"1\"", "3000000000", "[]", "true"}},
    {"timeout", {"0", "-1", "\"1\"", "1e7", "true"}},
    {"cache_salt", {"1", "\"\"", "[\"a\"]", "{}"}},
    {"encoding_format", {"\"int8\"", "1", "[]"}},
    {"pooling", {"\"max\"", "1", "true"}},
    {"return_token_strs", {"1", "\"x\""}},
    {"system", {"1", "{}", "true"}},
    {"stop_sequences", {"1", "[\"\"]", "[1]"}},
    {"instructions", {"1", "[]"}},
    {"max_output_tokens", {"0", "-2", "\"1\""}},
    {"tokens", {"1", "\"a\"", "[100]", "[-1]", "[\"a\"]", "[1.5]"}},
};

// Whether `param` is `field` or an element or member of it: "stop", "stop[1]".
bool is_in(std::string_view param, std::string_view field) {
  return param.starts_with(field) &&
         (param.size() == field.size() || param[field.size()] == '[' || param[field.size()] == '.');
}

TEST(BadRequests, NameTheFieldWithAWrongTypeOrValue) {
  int tried = 0;
  for (const Bad& bad : kBadValues) {
    for (const char* value : bad.values) {
      const std::string field = '"' + std::string(bad.field) + "\": " + value;
      for (const Api api : every_api()) {
        if (api == Api::kLlamaCompletion && field == R"("max_tokens": 0)") continue;  // fills the cache
        const ApiError error = error_of(api, body_with(api, field));
        EXPECT_EQ(error.status, 400) << field;
        EXPECT_TRUE(is_in(error.param, bad.field)) << field << ": " << error.what();
        EXPECT_TRUE(std::string(error.what()).starts_with(bad.field)) << error.what();
        ++tried;
      }
    }
  }
  EXPECT_GE(tried, 1000);
}

struct Case {
  Api api;
  const char* param;
  const char* body;
};
const Case kBadRequests[] = {
    // Fields of one API.
    {Api::kChat, "logprobs", R"({"messages": [{"role": "user", "content": ""}], "logprobs": 5})"},
    {Api::kChat, "top_logprobs", R"({"messages": [{"role": "user", "content": ""}], "top_logprobs": 5})"},
    {Api::kChat, "top_logprobs",
     R"({"messages": [{"role": "user", "content": ""}], "logprobs": true, "top_logprobs": 1025})"},
    {Api::kChat, "top_logprobs",
     R"({"messages": [{"role": "user", "content": ""}], "logprobs": true, "top_logprobs": -1})"},
    {Api::kChat, "max_completion_tokens",
     R"({"messages": [{"role": "user", "content": ""}], "max_completion_tokens": 0})"},
    {Api::kChat, "min_tokens", R"({"messages": [{"role": "user", "content": ""}], "max_tokens": 3, "min_tokens": 4})"},
    {Api::kChat, "prompt", R"({"messages": [{"role": "user", "content": ""}], "prompt": "x"})"},
    {Api::kChat, "echo", R"({"messages": [{"role": "user", "content": ""}], "echo": true})"},
    {Api::kChat, "add_generation_prompt",
     R"({"messages": [{"role": "user", "content": ""}], "add_generation_prompt": 1})"},
    {Api::kChat, "continue_final_message",
     R"({"messages": [{"role": "user", "content": ""}], "continue_final_message": "x"})"},
    {Api::kChat, "continue_final_message",
     R"({"messages": [{"role": "user", "content": ""}], "continue_final_message": true, "add_generation_prompt": true})"},
    {Api::kChat, "chat_template_kwargs",
     R"({"messages": [{"role": "user", "content": ""}], "chat_template_kwargs": [1]})"},
    {Api::kChat, "reasoning_effort", R"({"messages": [{"role": "user", "content": ""}], "reasoning_effort": 3})"},
    {Api::kChat, "documents", R"({"messages": [{"role": "user", "content": ""}], "documents": {}})"},
    {Api::kChat, "documents[0]", R"({"messages": [{"role": "user", "content": ""}], "documents": ["x"]})"},
    {Api::kChat, "stream_options.include_usage",
     R"({"messages": [{"role": "user", "content": ""}], "stream": true, "stream_options": {"include_usage": 1}})"},
    {Api::kCompletion, "logprobs", R"({"prompt": "x", "logprobs": true})"},
    {Api::kCompletion, "logprobs", R"({"prompt": "x", "logprobs": -1})"},
    {Api::kCompletion, "logprobs", R"({"prompt": "x", "logprobs": 1025})"},
    {Api::kCompletion, "echo", R"({"prompt": "x", "echo": "yes"})"},
    {Api::kCompletion, "messages", R"({"prompt": "x", "messages": []})"},
    {Api::kCompletion, "top_logprobs", R"({"prompt": "x", "top_logprobs": 1})"},
    {Api::kCompletion, "max_completion_tokens", R"({"prompt": "x", "max_completion_tokens": 1})"},
    {Api::kCompletion, "min_tokens", R"({"prompt": "x", "min_tokens": 17})"},
    {Api::kCompletion, "best_of", R"({"prompt": "x", "n": 3, "best_of": 2})"},
    {Api::kCompletion, "suffix", R"({"prompt": "x", "suffix": 5})"},
    {Api::kCompletion, "prompt_logprobs", R"({"prompt": "x", "prompt_logprobs": 1, "stream": true})"},
    {Api::kCompletion, "prompt_logprobs", R"({"prompt": "x", "prompt_logprobs": 1, "echo": true, "logprobs": 2})"},
    {Api::kCompletion, "echo", R"({"prompt": "x", "stream": true, "echo": true, "logprobs": 2, "n": 2})"},
    {Api::kCompletion, "max_tokens", R"({"prompt": "x", "max_tokens": 0})"},
    {Api::kChat, "max_tokens", R"({"messages": [{"role": "user", "content": ""}], "max_tokens": 0})"},
    // Other APIs.
    {Api::kTokenize, "prompt", R"({})"},
    {Api::kTokenize, "prompt", R"({"prompt": "a", "messages": [{"role": "user", "content": ""}]})"},
    {Api::kTokenize, "prompt", R"({"prompt": ["a"]})"},
    {Api::kDetokenize, "tokens", R"({})"},
    {Api::kDetokenize, "tokens[0]", R"({"tokens": [[1]]})"},
    {Api::kEmbedding, "input", R"({})"},
    {Api::kEmbedding, "input", R"({"input": []})"},
    {Api::kEmbedding, "dimensions", R"({"input": "a", "dimensions": 64})"},
    {Api::kEmbedding, "pooling", R"({"input": "a", "pooling": "max"})"},
    {Api::kRerank, "query", R"({"documents": ["a"]})"},
    {Api::kRerank, "documents", R"({"query": "a"})"},
    {Api::kRerank, "documents", R"({"query": "a", "documents": []})"},
    {Api::kRerank, "documents[1]", R"({"query": "a", "documents": ["b", 1]})"},
    {Api::kRerank, "documents[0].text", R"({"query": "a", "documents": [{}]})"},
    {Api::kRerank, "query", R"({"query": ["a"], "documents": ["b"]})"},
    {Api::kRerank, "top_n", R"({"query": "a", "documents": ["b"], "top_n": -1})"},
    {Api::kRerank, "max_tokens_per_doc", R"({"query": "a", "documents": ["b"], "max_tokens_per_doc": 9})"},
    {Api::kRerank, "temperature", R"({"query": "a", "documents": ["b"], "temperature": 1})"},
    {Api::kScore, "text_1", R"({"text_2": "a"})"},
    {Api::kScore, "text_2", R"({"text_1": "a"})"},
    {Api::kScore, "text_1", R"({"text_1": ["a", "b"], "text_2": ["c", "d", "e"]})"},
    {Api::kScore, "top_n", R"({"text_1": "a", "text_2": "b", "top_n": 1})"},
    {Api::kEmbedding, "temperature", R"({"input": "a", "temperature": 1})"},
    {Api::kMessage, "max_tokens", R"({"messages": [{"role": "user", "content": "a"}]})"},
    {Api::kMessage, "max_tokens", R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 0})"},
    {Api::kMessage, "messages", R"({"max_tokens": 1})"},
    {Api::kMessage, "messages", R"({"max_tokens": 1, "messages": []})"},
    {Api::kMessage, "messages[0].role", R"({"max_tokens": 1, "messages": [{"role": "tool", "content": "a"}]})"},
    {Api::kMessage, "messages[0].content", R"({"max_tokens": 1, "messages": [{"role": "user"}]})"},
    {Api::kMessage, "messages[0].content[0].type",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})"},
    {Api::kMessage, "messages[0].content[0].type",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "tool_use", "id": "1", "name": "f"}]}]})"},
    {Api::kMessage, "messages[0].content[0].tool_use_id",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "tool_result"}]}]})"},
    {Api::kMessage, "messages[0].content[0].content[0].type",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
         "content": [{"type": "image"}]}]}]})"},
    {Api::kMessage, "messages[0].content[0].type",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "redacted_thinking", "data": "a"}]}]})"},
    {Api::kMessage, "tools[0].type", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"type": "function", "function": {"name": "f"}}]})"},
    {Api::kMessage, "tools[0].input_schema.type", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"name": "f", "input_schema": {"type": "array"}}]})"},
    {Api::kMessage, "tool_choice", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tool_choice": {"type": "any"}})"},
    {Api::kMessage, "thinking.budget_tokens", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "thinking": {"type": "enabled", "budget_tokens": -1}})"},
    {Api::kMessage, "tool_choice.type", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
         "tools": [{"name": "f"}], "tool_choice": {"type": "required"}})"},
    {Api::kMessage, "tools[0].name",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "tools": [{}]})"},
    {Api::kResponse, "input", R"({})"},
    {Api::kResponse, "input", R"({"input": []})"},
    {Api::kResponse, "input", R"({"input": 1})"},
    {Api::kResponse, "input[0]", R"({"input": ["a"]})"},
    {Api::kResponse, "input[0].call_id", R"({"input": [{"type": "function_call_output", "output": ""}]})"},
    {Api::kResponse, "input[0].type", R"({"input": [{"type": "item_reference"}]})"},
    {Api::kResponse, "input[0].name", R"({"input": [{"type": "function_call", "call_id": "1"}]})"},
    {Api::kResponse, "input[0].output[0].type",
     R"({"input": [{"type": "function_call_output", "call_id": "1", "output": [{"type": "input_image"}]}]})"},
    {Api::kResponse, "tools[0].type", R"({"input": "a", "tools": [{"type": ""}]})"},
    {Api::kResponse, "tools[0].strict",
     R"({"input": "a", "tools": [{"type": "function", "name": "f", "strict": "yes"}]})"},
    {Api::kResponse, "input[0].role", R"({"input": [{"role": "tool", "content": "a"}]})"},
    {Api::kResponse, "input[0].content[0].type",
     R"({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": ""}]}]})"},
    {Api::kResponse, "previous_response_id", R"({"input": "a", "previous_response_id": "resp_1"})"},
    {Api::kResponse, "text.format.type", R"({"input": "a", "text": {"format": {"type": "xml"}}})"},
    {Api::kResponse, "truncation", R"({"input": "a", "truncation": "middle"})"},
    {Api::kResponse, "store", R"({"input": "a", "store": "yes"})"},
    {Api::kResponse, "include[0]", R"({"input": "a", "include": [1]})"},
    {Api::kResponse, "reasoning.effort", R"({"input": "a", "reasoning": {"effort": 1}})"},
    {Api::kResponse, "top_logprobs", R"({"input": "a", "top_logprobs": 2})"},
    {Api::kResponse, "input", R"({"input": [{"type": "reasoning"}]})"},
    {Api::kResponse, "input[0].call_id", R"({"input": [{"type": "function_call"}]})"},
    {Api::kChat, "verbosity", R"({"messages": [{"role": "user", "content": ""}], "verbosity": 1})"},
    {Api::kMessage, "thinking.type",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": ""}], "thinking": {"type": "much"}})"},
    {Api::kMessage, "context_management.edits[0].type",
     R"({"max_tokens": 1, "messages": [{"role": "user", "content": ""}],
       "context_management": {"edits": [{"type": "compact_20260112"}]}})"},
    {Api::kMessage, "output_config.format.schema", R"({"max_tokens": 1, "messages": [{"role": "user", "content": ""}],
       "output_config": {"format": {"type": "json_schema"}}})"},
    {Api::kCountTokens, "messages", R"({"system": "a"})"},
    {Api::kCountTokens, "max_tokens", R"({"messages": [{"role": "user", "content": ""}], "max_tokens": 1})"},
    {Api::kEmbedding, "dimensions", R"({"input": "a", "dimensions": 8})"},
    {Api::kEmbedding, "input.multimodal_data", R"({"input": {"prompt_string": "a", "multimodal_data": ["x"]}})"},
    {Api::kChat, "chat_template_kwargs.messages",
     R"({"messages": [{"role": "user", "content": ""}], "chat_template_kwargs": {"messages": []}})"},
    {Api::kChat, "chat_template_kwargs.tools",
     R"({"messages": [{"role": "user", "content": ""}], "chat_template_kwargs": {"tools": [1]}})"},
    {Api::kChat, "messages[0].role", R"({"messages": [{"role": "wizard", "content": "Hi"}]})"},
    {Api::kResponse, "background", R"({"input": "a", "background": true})"},
    // Prompts.
    {Api::kCompletion, "prompt", R"({})"},
    {Api::kCompletion, "prompt", R"({"prompt": null})"},
    {Api::kCompletion, "prompt", R"({"prompt": 1})"},
    {Api::kCompletion, "prompt.prompt_string", R"({"prompt": {}})"},
    {Api::kCompletion, "prompt", R"({"prompt": []})"},
    {Api::kCompletion, "prompt[0]", R"({"prompt": [[]]})"},
    {Api::kCompletion, "prompt[1]", R"({"prompt": ["a", []]})"},
    {Api::kCompletion, "prompt[2]", R"({"prompt": ["a", 1, true]})"},
    {Api::kCompletion, "prompt[0]", R"({"prompt": [100, "a"]})"},
    {Api::kCompletion, "prompt[1]", R"({"prompt": [1, {}]})"},
    {Api::kCompletion, "prompt[1]", R"({"prompt": [1, 1.5]})"},
    {Api::kCompletion, "prompt[0]", R"({"prompt": [100]})"},
    {Api::kCompletion, "prompt[0]", R"({"prompt": [-1]})"},
    {Api::kCompletion, "prompt[1][0]", R"({"prompt": [[1], [null]]})"},
    {Api::kCompletion, "prompt[0].prompt_string", R"({"prompt": [{"a": 1}]})"},
    {Api::kCompletion, "prompt[0]", R"({"prompt": [99999999999999999999]})"},
    // Messages.
    {Api::kChat, "messages", R"({})"},
    {Api::kChat, "messages", R"({"messages": null})"},
    {Api::kChat, "messages", R"({"messages": "Hi"})"},
    {Api::kChat, "messages", R"({"messages": {}})"},
    {Api::kChat, "messages", R"({"messages": []})"},
    {Api::kChat, "messages[0]", R"({"messages": ["Hi"]})"},
    {Api::kChat, "messages[0]", R"({"messages": [null]})"},
    {Api::kChat, "messages[0]", R"({"messages": [[]]})"},
    {Api::kChat, "messages[0].role", R"({"messages": [{"content": "Hi"}]})"},
    {Api::kChat, "messages[0].role", R"({"messages": [{"role": 1, "content": "Hi"}]})"},
    {Api::kChat, "messages[0].role", R"({"messages": [{"role": null, "content": "Hi"}]})"},
    {Api::kChat, "messages[0].role", R"({"messages": [{"role": "", "content": "Hi"}]})"},
    {Api::kChat, "messages[0].content", R"({"messages": [{"role": "user"}]})"},
    {Api::kChat, "messages[0].content", R"({"messages": [{"role": "user", "content": null}]})"},
    {Api::kChat, "messages[0].content", R"({"messages": [{"role": "user", "content": 7}]})"},
    {Api::kChat, "messages[0].content", R"({"messages": [{"role": "user", "content": {"type": "text"}}]})"},
    {Api::kChat, "messages[0].content.type",
     R"({"messages": [{"role": "tool", "content": {"type": "image_url", "image_url": {"url": "http://x"}}}]})"},
    {Api::kChat, "messages[0].content[0].type",
     R"({"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "a"}]}]})"},
    {Api::kChat, "messages[0].audio", R"({"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]})"},
    {Api::kChat, "messages[0].content[0]", R"({"messages": [{"role": "user", "content": [1]}]})"},
    {Api::kChat, "messages[0].content[0]", R"({"messages": [{"role": "user", "content": [{}]}]})"},
    {Api::kChat, "messages[0].content[0]", R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})"},
    {Api::kChat, "messages[0].content[0].text",
     R"({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]})"},
    {Api::kChat, "messages[0].content[0].type", R"({"messages": [{"role": "user", "content": [{"type": 1}]}]})"},
    {Api::kChat, "messages[0].content[1].type",
     R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
       {"type": "image_url", "image_url": {"url": "http://x"}}]}]})"},
    {Api::kChat, "messages[0].content[0].type",
     R"({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]})"},
    {Api::kChat, "messages[0].tool_calls", R"({"messages": [{"role": "assistant", "tool_calls": {}}]})"},
    {Api::kChat, "messages[0].tool_calls[0]", R"({"messages": [{"role": "assistant", "tool_calls": [1]}]})"},
    {Api::kChat, "messages[0].tool_calls[0].function", R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})"},
    {Api::kChat, "messages[0].tool_calls[0].function.name",
     R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]})"},
    // Not an object, not JSON.
    {Api::kChat, "", ""},
    {Api::kChat, "", " "},
    {Api::kChat, "", "null"},
    {Api::kChat, "", "[]"},
    {Api::kChat, "", "\"x\""},
    {Api::kChat, "", "1"},
    {Api::kChat, "", "{"},
    {Api::kChat, "", "{}{}"},
    {Api::kChat, "", "{\"a\"}"},
    {Api::kChat, "", "{'a': 1}"},
    {Api::kChat, "", "{\"a\": 1,}"},
    {Api::kChat, "", "{\"a\": NaN}"},
    {Api::kChat, "", "{\"a\": Infinity}"},
    {Api::kChat, "", "{\"a\": 1e999}"},
    {Api::kChat, "", "{\"a\": 01}"},
    {Api::kChat, "", "{\"a\": +1}"},
    {Api::kChat, "", "{\"a\": \"\n\"}"},
    {Api::kChat, "", "{\"a\": \"\\x\"}"},
    {Api::kChat, "", "{\"a\": \"\xff\"}"},
    {Api::kChat, "", "{\"a\": \"\xc0\x80\"}"},
    {Api::kChat, "", "\xff\xfe{}"},
    {Api::kChat, "", "model=m&prompt=Hi"},
};

TEST(BadRequests, GetA400ThatNamesTheField) {
  for (const Case& c : kBadRequests) {
    const ApiError error = error_of(c.api, c.body);
    EXPECT_EQ(error.status, 400) << c.body;
    EXPECT_EQ(error.param, c.param) << c.body << ": " << error.what();
    EXPECT_TRUE(Json::parse(error_body(error)).contains("error")) << c.body;
  }
}

TEST(BadRequests, NestedTooDeepAreRefused) {
  for (const size_t depth : {65, 1000, 100'000, 3'000'000}) {
    const std::string open(depth, '['), objects = [&] {
      std::string text;
      for (size_t i = 0; i < depth; ++i) text += "{\"a\":";
      return text;
    }();
    for (const std::string& bomb : {open, objects, open + std::string(depth, ']')}) {
      EXPECT_EQ(chat_error(bomb).status, 400);
      EXPECT_EQ(chat_error(chat_with("\"x\": " + bomb + "}")).status, 400);
    }
  }
  EXPECT_NO_THROW(parse_chat(chat_with("\"x\": " + std::string(63, '[') + std::string(63, ']'))));
}

TEST(BadRequests, WithManyValuesOrKeysTakeLinearTime) {
  std::string many = R"({"prompt": [0)";
  for (size_t i = 0; i < kMaxBodyValues; ++i) many += ",1";
  EXPECT_EQ(completion_error(many + "]}").status, 400);
  std::string keys = "{\"a\": 1";
  for (int i = 0; i < 300'000; ++i) keys += ",\"k" + std::to_string(i) + "\":1";
  EXPECT_EQ(completion_error(keys + "}").param, "prompt");
  EXPECT_EQ(chat_error(R"({"messages": [)" + keys + "}]}").param, "messages[0].role");
  // The path of each takes as long to find as the body is large, so not all are kept.
  EXPECT_EQ(parse_chat(chat_with(keys.substr(1))).without_effect.size(), 64u);
}

TEST(BadRequests, GetShortMessagesForLongValues) {
  const std::string odd = "\"" + std::string(100'000, 'x') + "\"", accents = [] {
    std::string text = "\"";
    for (int i = 0; i < 100; ++i) text += "é\xe2\x82\xac";
    return text + "\"";
  }();
  for (const std::string& value : {odd, accents}) {
    const ApiError error = chat_error(chat_with("\"temperature\": " + value));
    EXPECT_LT(std::string(error.what()).size(), 300u);
    EXPECT_TRUE(Json::parse(error_body(error)).contains("error"));
  }
}

// Any bytes give a request, or an ApiError whose body is JSON.
void expect_request_or_api_error(const std::string& body) {
  for (const Api api : every_api()) {
    try {
      const ApiRequest request = parse(api, body);
      RC_ASSERT(!request.model.empty());
    } catch (const ApiError& e) {
      RC_ASSERT(e.status == 400 || e.status == 404);
      for (const ErrorShape shape : {ErrorShape::kOpenAi, ErrorShape::kAnthropic, ErrorShape::kOllama}) {
        RC_ASSERT(Json::parse(error_body(e, shape)).contains("error"));
      }
    }
  }
}

TEST(BadRequests, OfRandomBytesGetAnApiErrorOrParse) {
  EXPECT_TRUE(rc::check([](const std::string& bytes) { expect_request_or_api_error(bytes); }));
}

// Random fields with random values, added to valid ones; then some bytes change.
TEST(BadRequests, OfRandomFieldsGetAnApiErrorOrParse) {
  const char* values[] = {"null",
                          "true",
                          "0",
                          "-1",
                          "1",
                          "7.5",
                          "1e308",
                          "-9223372036854775808",
                          "18446744073709551615",
                          "\"\"",
                          "\"a\"",
                          "\"auto\"",
                          "[]",
                          "[1]",
                          "[\"a\"]",
                          "[[1,2],[3]]",
                          "{}",
                          "{\"1\":2}",
                          "{\"type\":\"text\"}",
                          "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\\u20ac\"}]}]"};
  const std::vector<std::string_view> names = every_field();
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    std::string body = body_with({all_apis()[random() % all_apis().size()]->path}, "");
    body.pop_back();
    for (size_t fields = random() % 6; fields > 0; --fields) {
      const std::string_view name = names[random() % names.size()];
      body += ",\"" + std::string(name) + "\":" + values[random() % std::size(values)];
    }
    body += '}';
    for (size_t damage = random() % 3; damage > 0; --damage) body[random() % body.size()] = static_cast<char>(random());
    expect_request_or_api_error(body);
  }
}

}  // namespace
}  // namespace quire
