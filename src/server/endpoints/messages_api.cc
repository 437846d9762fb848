// The rows of Anthropic's Messages API.
#include <optional>
#include <string>

#include "server/api/request/field_readers.h"
#include "server/api/request/structured_output.h"
#include "server/api/request/tools.h"
#include "server/api/service.h"
#include "server/endpoints/messages.h"

namespace quire {
namespace {

// What makes the prompt.
constexpr ApiField kMessageInputFields[] = {
    {"messages", read_text_messages,
     R"({"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/TextMessage"}})",
     "a trailing assistant message is continued"},
    {"system", read_system, R"({"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/TextParts"}]})"},
    {"thinking", read_thinking,
     R"({"type": "object", "required": ["type"], "properties": {"type": {"enum": ["enabled", "disabled", "adaptive"]}}})",
     "sets enable_thinking for the chat template; a thought of budget_tokens is closed"},
    {"context_management", read_context_management,
     R"({"type": "object", "properties": {"edits": {"type": ["array", "null"], "maxItems": 64, "items": {"type": "object",
         "required": ["type"], "properties": {"type": {"type": "string", "pattern": "^clear_"}}}}}})",
     "edits that clear tool uses or thinking have nothing to clear"},
    {"output_config", read_output_config,
     R"({"type": "object", "properties": {"effort": {"type": ["string", "null"]}, "format": {"type": ["object", "null"],
         "required": ["type"], "properties": {"type": {"enum": ["text", "json_schema"]}, "schema": {}}}}})",
     "format: what the answer matches; effort is the variable reasoning_effort of the chat template"},
    {"tools", read_message_tools,
     R"({"type": "array", "maxItems": 512, "items": {"$ref": "#/components/schemas/MessageTool"}})"},
    {"tool_choice", read_message_tool_choice,
     R"({"type": "object", "required": ["type"], "properties": {"type": {"enum": ["auto", "any", "tool", "none"]},
         "name": {"type": "string"}, "disable_parallel_tool_use": {"type": ["boolean", "null"]}}})",
     "none: the model is not told of the tools"},
};

constexpr std::string_view kMessageSchemas = R"json({
  "MessageTool": {"anyOf": [{"$ref": "#/components/schemas/OtherTool"},
      {"type": "object", "required": ["name"], "properties": {"type": {"enum": ["custom", null]},
        "name": {"$ref": "#/components/schemas/ToolName"}, "description": {"type": ["string", "null"]},
        "strict": {"type": ["boolean", "null"]},
        "input_schema": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/Parameters"}]}}}]},
  "TextMessage": {"type": "object", "required": ["role", "content"],
      "properties": {"role": {"enum": ["user", "assistant", "system"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"anyOf": [
          {"$ref": "#/components/schemas/TextPart"},
          {"type": "object", "required": ["type"], "properties": {"type": {"const": "thinking"},
            "thinking": {"type": ["string", "null"]}}},
          {"type": "object", "required": ["type"], "properties": {"type": {"const": "redacted_thinking"}}},
          {"description": "what a provider's own tool found", "type": "object", "required": ["type", "tool_use_id"],
            "properties": {"type": {"type": "string", "pattern": "_tool_result$"}}},
          {"type": "object", "required": ["type"], "properties": {"type": {"const": "compaction"}}},
          {"type": "object", "required": ["type", "id", "name"], "properties": {
            "type": {"enum": ["tool_use", "server_tool_use", "mcp_tool_use"]},
            "id": {"type": "string"}, "name": {"type": "string"}, "input": {}}},
          {"type": "object", "required": ["type", "tool_use_id"], "properties": {"type": {"const": "tool_result"},
            "tool_use_id": {"type": "string"}, "content": {}}}
        ]}}]}}},
  "MessageAnswer": {"type": "object",
    "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
    "properties": {"id": {"type": "string"}, "type": {"const": "message"}, "role": {"const": "assistant"},
      "model": {"type": "string"}, "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
      "stop_sequence": {"type": ["string", "null"]},
      "content": {"type": "array", "items": {"anyOf": [
        {"type": "object", "required": ["type", "text"],
          "properties": {"type": {"const": "text"}, "text": {"type": "string"}}},
        {"type": "object", "required": ["type", "thinking", "signature"],
          "properties": {"type": {"const": "thinking"}, "thinking": {"type": "string"}}},
        {"type": "object", "required": ["type", "id", "name", "input"],
          "properties": {"type": {"const": "tool_use"}, "input": {"type": "object"}}}]}},
      "usage": {"type": "object", "required": ["input_tokens", "output_tokens"]}}},
  "TokenCount": {"type": "object", "required": ["input_tokens"], "properties": {"input_tokens": {"type": "integer"}}},
  "AnthropicError": {"type": "object", "required": ["type", "error"], "properties": {"type": {"const": "error"},
    "error": {"type": "object", "required": ["type", "message"], "properties": {"type": {"type": "string"},
    "message": {"type": "string"}}}}}
})json";

std::optional<std::string> count_tokens(Service& service, ApiRequest& request) {
  service.prepare_chat(request);
  return dump({{"input_tokens", service.encode(request, 0).size()}});
}

}  // namespace

const ApiDefinition& message_api() {
  static const ApiDefinition api{
      .path = "/v1/messages",
      .summary = "Answer a conversation: Anthropic's Messages API, text only.",
      .errors = ErrorShape::kAnthropic,
      .in_batches = true,
      .fields = join(
          {kModelField,
           {"max_tokens", read_max_answer_tokens, schemas::kPositive},
           {"stop_sequences", read_stop, schemas::kStop, "64 KiB in total"},
           {"output_format", read_output_format,
            R"({"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text", "json_schema"]}, "schema": {}}})",
            "what the answer matches"},
           kStreamField,
           kParseSpecialField,
           kTemplateKwargsField},
          {kMessageInputFields, sampling_fields(), engine_fields()}),
      .refused =
          join({{"response_format", R"([{"type": "text"}])", "use text.format in responses, output_format in messages"},
                kSamplersField,
                kOwnTemplateField},
               {refused_sampling_fields(), refused_wrappers()}),
      .required = {"messages", "max_tokens"},
      .generates_text = true,
      .answer = [](ResponseHead head, TokenBytes) { return message_answer(std::move(head)); },
      .id_prefix = "msg_",
      .answer_schema = "MessageAnswer",
      .stream_type = "text/event-stream",
      .schemas = kMessageSchemas};
  return api;
}

const ApiDefinition& count_tokens_api() {
  static const ApiDefinition api{
      .path = "/v1/messages/count_tokens",
      .summary = "Count the prompt tokens of a request to /v1/messages.",
      .errors = ErrorShape::kAnthropic,
      .fields = join({kModelField, kParseSpecialField, kTemplateKwargsField}, {kMessageInputFields}),
      .refused = {kOwnTemplateField},
      .required = {"messages"},
      .reply = count_tokens,
      .answer_schema = "TokenCount"};
  return api;
}

}  // namespace quire
