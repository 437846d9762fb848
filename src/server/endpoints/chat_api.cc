// The rows of /v1/chat/completions and /v1/completions.
#include "server/api/request/field_readers.h"
#include "server/api/request/prompts.h"
#include "server/api/request/structured_output.h"
#include "server/api/request/tools.h"
#include "server/endpoints/chat.h"
#include "server/endpoints/infill.h"

namespace quire {
namespace {

constexpr int kCompletionMaxTokens = 16;  // OpenAI's default for /v1/completions

constexpr ApiField kChatInputFields[] = {
    {"messages", read_chat_messages,
     R"({"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Message"}})"},
    {"tools", read_tools, R"({"type": "array", "maxItems": 512, "items": {"$ref": "#/components/schemas/Tool"}})"},
    {"add_generation_prompt", read_add_generation_prompt, schemas::kSwitch},
    {"continue_final_message", read_continue_final_message, schemas::kSwitch,
     "continue the last message; not with add_generation_prompt"},
};

// Chats and completions have these.
constexpr ApiField kOpenAiFields[] = {
    {"prompt_logprobs", read_prompt_logprobs, schemas::kUpToLogprobs, "not in streams"},
    {"n", &sampling_parameter("n"), {}, "prompts times n: at most 2048"},
    {"best_of", read_best_of, R"({"type": "integer", "minimum": 1, "maximum": 128})", "must equal n"},
    {"return_tokens_as_token_ids", &ApiRequest::return_tokens_as_token_ids, {}, "logprobs name tokens \"token_id:17\""},
    {"return_token_ids", &ApiRequest::return_token_ids, {}, "also return prompt_token_ids and token_ids"},
    {"response_format", read_response_format,
     R"({"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text", "json_object", "json_schema"]},
         "json_schema": {"type": "object", "required": ["schema"]}}})",
     "what the answer matches (docs/structured-output.md)"},
};

constexpr std::string_view kUseChats = "use /v1/chat/completions";

constexpr std::string_view kChatSchemas = R"json({
  "Message": {"type": "object", "required": ["role"],
      "properties": {"role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
        "content": {"description": "a text, or parts with text; of a tool's result any JSON"}, "refusal": {"type": ["string", "null"]},
        "tool_call_id": {"type": ["string", "null"]},
        "reasoning_content": {"type": ["string", "null"]}, "reasoning": {"type": ["string", "null"]},
        "tool_calls": {"type": ["array", "null"], "maxItems": 1024, "items": {"type": "object",
          "required": ["function"], "properties": {"id": {"type": ["string", "null"]},
            "function": {"$ref": "#/components/schemas/CalledFunction"}}}},
        "function_call": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/CalledFunction"}]}},
      "anyOf": [{"properties": {"role": {"const": "assistant"}, "content": {"anyOf": [{"type": ["string", "null"]},
                  {"$ref": "#/components/schemas/AnswerParts"}]}}},
                {"properties": {"role": {"enum": ["tool", "function"]}}},
                {"required": ["content"], "properties": {"role": {"enum": ["system", "developer", "user"]},
                  "content": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/TextParts"}]}}}]},
  "ToolChoice": {"anyOf": [{"enum": ["auto", "none", "required"]}, {"type": "object", "required": ["type"],
      "properties": {"type": {"enum": ["function", "allowed_tools"]}}}]},
  "ChatAnswer": {"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {"id": {"type": "string"}, "object": {"const": "chat.completion"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"},
      "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
        "required": ["index", "message", "logprobs", "finish_reason"], "properties": {"index": {"type": "integer"},
          "message": {"type": "object", "required": ["role", "content"],
            "properties": {"role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
              "reasoning_content": {"type": "string"}, "reasoning": {"type": "string"},
              "function_call": {"$ref": "#/components/schemas/CalledFunction"},
              "tool_calls": {"type": "array", "items": {"type": "object", "required": ["id", "type", "function"],
                "properties": {"id": {"type": "string"}, "type": {"const": "function"},
                  "function": {"$ref": "#/components/schemas/CalledFunction"}}}}}},
          "logprobs": {"type": ["object", "null"]},
          "finish_reason": {"enum": ["stop", "length", "tool_calls", "function_call"]}}}}}},
  "CompletionAnswer": {"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {"id": {"type": "string"}, "object": {"const": "text_completion"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"},
      "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
        "required": ["index", "text", "logprobs", "finish_reason"], "properties": {"index": {"type": "integer"},
          "text": {"type": "string"}, "logprobs": {"type": ["object", "null"]},
          "finish_reason": {"enum": ["stop", "length"]}}}}}}
})json";

void read_logprobs_count(ApiDraft& draft, const JsonField& field) {
  draft.sampling.logprobs = static_cast<int>(field.integer(0, kMaxLogprobs));
}

void settle_completion(ApiDraft& draft) {
  if (!draft.sampling.max_tokens) draft.sampling.max_tokens = kCompletionMaxTokens;
  settle_suffix(draft);
}

}  // namespace

std::span<const ApiField> chat_input_fields() { return kChatInputFields; }

const ApiDefinition& chat_api() {
  static const ApiDefinition api{
      .path = "/v1/chat/completions",
      .summary = "Answer a chat.",
      .in_batches = true,
      .fields =
          join({kModelField,
                kMaxTokensField,
                kPredictField,
                {"max_completion_tokens", read_max_completion_tokens, schemas::kPositiveLimit, "overrides max_tokens"},
                {"logprobs", read_logprobs, schemas::kSwitch},
                {"reasoning_effort", read_reasoning_effort, schemas::kText, "a variable for the chat template"},
                {"verbosity", read_verbosity, schemas::kText, "a variable for the chat template"},
                {"functions", read_functions,
                 R"({"type": "array", "maxItems": 512, "items": {"$ref": "#/components/schemas/Function"}})",
                 "deprecated: tools"},
                {"function_call", read_function_call,
                 R"({"anyOf": [{"enum": ["auto", "none"]}, {"type": "object", "required": ["name"]}]})",
                 "deprecated: tool_choice"},
                {"documents", read_documents, R"({"type": "array", "maxItems": 1024, "items": {"type": "object"}})",
                 "for the chat template"},
                kTopLogprobsField,
                kStopField,
                kStreamField,
                kStreamOptionsField,
                kParseSpecialField,
                kTruncatePromptField,
                kTemplateKwargsField,
                kStoreField},
               {kChatInputFields, kOpenAiFields, sampling_fields(), call_fields(), engine_fields()}),
      .refused =
          join({kSamplersField, kThinkingField, kOwnTemplateField}, {refused_sampling_fields(), refused_wrappers()}),
      .required = {"messages"},
      .generates_text = true,
      .answer =
          [](ResponseHead head, TokenBytes token_bytes) {
            return head.request.stream ? chat_stream(std::move(head), std::move(token_bytes))
                                       : chat_body(std::move(head), std::move(token_bytes));
          },
      .id_prefix = "chatcmpl-",
      .answer_schema = "ChatAnswer",
      .stream_type = "text/event-stream",
      .schemas = kChatSchemas};
  return api;
}

const ApiDefinition& completion_api() {
  static const ApiDefinition api{
      .path = "/v1/completions",
      .summary = "Continue texts.",
      .in_batches = true,
      .fields = join(
          {kModelField,
           kMaxTokensField,
           kPredictField,
           {"prompt", read_prompt, schemas::kPrompts},
           {"logprobs", read_logprobs_count, schemas::kUpToLogprobs, "with echo also for the prompt's tokens"},
           {"echo", &ApiRequest::echo, {}, "the answer begins with the prompt"},
           {"suffix", read_suffix, schemas::kText, "fill in the middle: the answer goes between prompt and suffix"},
           kStopField,
           kStreamField,
           kStreamOptionsField,
           kParseSpecialField,
           kTruncatePromptField,
           kAddSpecialTokensField},
          {kOpenAiFields, sampling_fields(), engine_fields()}),
      .refused = join({{"tools", "[[]]", kUseChats},
                       {"tool_choice", R"(["none"])", kUseChats},
                       {"functions", "[[]]", kUseChats},
                       {"function_call", R"(["none"])", kUseChats},
                       {"prompt_embeds", "[]", "send text or token ids"},
                       kSamplersField,
                       kThinkingField,
                       kOwnTemplateField},
                      {refused_sampling_fields(), refused_wrappers()}),
      .required = {"prompt"},
      .generates_text = true,
      .settle = settle_completion,
      .adapt = require_infill,
      .answer = chat_api().answer,
      .repeats_prompt = true,
      .answer_schema = "CompletionAnswer",
      .stream_type = "text/event-stream"};
  return api;
}

}  // namespace quire
