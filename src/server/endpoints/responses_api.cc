// The rows of OpenAI's Responses API.
#include <optional>
#include <string>

#include "server/api/error.h"
#include "server/api/request/field_readers.h"
#include "server/api/request/structured_output.h"
#include "server/api/request/tools.h"
#include "server/api/service.h"
#include "server/endpoints/responses.h"

namespace quire {
namespace {

constexpr std::string_view kNotStored = "nothing is stored; send the whole conversation as input";

constexpr std::string_view kResponseSchemas = R"json({
  "ResponseTool": {"anyOf": [{"$ref": "#/components/schemas/OtherTool"},
      {"type": "object", "required": ["type"], "properties": {"type": {"const": "custom"}}},
      {"allOf": [{"$ref": "#/components/schemas/Function"},
        {"type": "object", "properties": {"type": {"enum": ["function", null]}}}]}]},
  "Item": {"anyOf": [{"type": "object", "required": ["type"], "properties": {"type": {"const": "reasoning"}}},
      {"type": "object", "required": ["type", "call_id", "name"], "properties": {"type": {"const": "function_call"},
        "call_id": {"type": "string"}, "name": {"type": "string"}, "arguments": {}}},
      {"type": "object", "required": ["type", "call_id"], "properties": {"type": {"const": "function_call_output"},
        "call_id": {"type": "string"}, "output": {}}},
      {"description": "of other tools: shown as calls and results, or left out", "type": "object", "required": ["type"],
        "properties": {"type": {"type": "string", "pattern": "_call(_output)?$", "not": {"enum": ["function_call",
          "function_call_output"]}}}},
      {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["agent_message", "compaction",
        "compaction_summary", "compaction_trigger", "context_compaction", "ghost_snapshot", "mcp_list_tools",
        "additional_tools", "mcp_approval_request", "mcp_approval_response", "tool_search_output"]}}},
      {"$ref": "#/components/schemas/MessageItem"}]},
  "InputTexts": {"type": "array", "items": {"anyOf": [{"type": "string"},
      {"type": "object", "required": ["type", "text"], "properties": {"type": {"enum": ["input_text", "output_text", "text"]},
        "text": {"type": "string"}}}, {"$ref": "#/components/schemas/AnswerPart"}]}},
  "MessageItem": {"type": "object", "required": ["role", "content"],
      "properties": {"type": {"const": "message"}, "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/InputTexts"}]}}},
  "Response": {"type": "object", "required": ["id", "object", "created_at", "status", "model", "output", "usage"],
    "properties": {"id": {"type": "string"}, "object": {"const": "response"}, "created_at": {"type": "integer"},
      "status": {"enum": ["completed", "incomplete"]}, "model": {"type": "string"},
      "output": {"type": "array", "items": {"type": "object", "required": ["id", "type", "status"],
        "properties": {"type": {"enum": ["message", "reasoning", "function_call"]}}}},
      "usage": {"type": "object", "required": ["input_tokens", "output_tokens", "total_tokens"]}}},
  "InputTokens": {"type": "object", "required": ["object", "input_tokens"],
    "properties": {"object": {"const": "response.input_tokens"}, "input_tokens": {"type": "integer"}}}
})json";

void settle_response(ApiDraft& draft) {
  if (draft.top_logprobs.value_or(0) > 0 && !draft.logprobs)
    throw bad_request("top_logprobs", "needs {}", R"(include: ["message.output_text.logprobs"])");
}

std::optional<std::string> count_input(Service& service, ApiRequest& request) {
  service.prepare_chat(request);
  return dump({{"object", "response.input_tokens"}, {"input_tokens", service.encode(request, 0).size()}});
}

}  // namespace

const ApiDefinition& response_api() {
  static const ApiDefinition api{
      .path = "/v1/responses",
      .summary = "Answer a text or a conversation: OpenAI's Responses API, text only.",
      .in_batches = true,
      .fields = join(
          {kModelField,
           {"input", read_items,
            R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Item"}}]})"},
           {"instructions", read_instructions, schemas::kText, "a system message before the input"},
           {"max_output_tokens", read_max_output_tokens, schemas::kPositiveLimit, "-1: no limit"},
           {"reasoning", read_reasoning,
            R"({"type": "object", "properties": {"effort": {"type": ["string", "null"]}}})",
            "effort is a variable for the chat template"},
           {"text", read_text_options, R"({"type": "object", "properties": {"verbosity": {"type": ["string", "null"]},
         "format": {"type": ["object", "null"], "required": ["type"], "properties": {"type": {"enum": ["text",
         "json_object", "json_schema"]}, "schema": {}}}}})",
            "format: what the answer matches; verbosity is a variable for the chat template"},
           {"truncation", read_truncation, R"({"enum": ["disabled", "auto"]})",
            "input that does not fit is refused in either case"},
           {"include", read_include, R"({"type": "array", "maxItems": 64, "items": {"type": "string"}})",
            "message.output_text.logprobs; the others name what text answers do not have"},
           {"tools", read_response_tools,
            R"({"type": "array", "maxItems": 512, "items": {"$ref": "#/components/schemas/ResponseTool"}})"},
           kTopLogprobsField,
           kStopField,
           kStreamField,
           kStreamOptionsField,
           kParseSpecialField,
           kTemplateKwargsField,
           kStoreField},
          {sampling_fields(), call_fields(), engine_fields()}),
      .refused =
          join({{"response_format", R"([{"type": "text"}])", "use text.format in responses, output_format in messages"},
                {"background", "[false]", "nothing is stored"},
                {"previous_response_id", "[]", kNotStored},
                {"conversation", "[]", kNotStored},
                kSamplersField,
                kThinkingField,
                kOwnTemplateField},
               {refused_sampling_fields(), refused_wrappers()}),
      .required = {"input"},
      .generates_text = true,
      .repeats = is_repeated,
      .settle = settle_response,
      .answer = response_answer,
      .id_prefix = "resp_",
      .prompt_field = "input",
      .instructions_field = "instructions",
      .answer_schema = "Response",
      .stream_type = "text/event-stream",
      .schemas = kResponseSchemas};
  return api;
}

const ApiDefinition& count_input_api() {
  static const ApiDefinition api = [] {
    ApiDefinition counts = response_api();
    counts.path = "/v1/responses/input_tokens";
    counts.summary = "Count the prompt tokens of a request to /v1/responses.";
    counts.reply = count_input;
    counts.answer = nullptr;
    counts.answer_schema = "InputTokens";
    counts.stream_type = {};
    return counts;
  }();
  return api;
}

}  // namespace quire
