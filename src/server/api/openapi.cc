#include "server/api/openapi.h"

#include <fmt/format.h>

#include <type_traits>

#include "server/api/answer.h"
#include "server/api/fields.h"
#include "server/api/routes.h"
#include "server/endpoints/llama.h"
#include "server/endpoints/ollama.h"

namespace quire {
namespace {

Json reference(std::string_view name) { return {{"$ref", fmt::format("#/components/schemas/{}", name)}}; }

// null counts as absent.
Json nullable(Json schema) {
  if (schema.contains("type")) {
    schema["type"] = Json::array({schema["type"], "null"});
  } else if (schema.contains("enum")) {
    schema["enum"].push_back(nullptr);
  } else if (schema.contains("anyOf")) {
    schema["anyOf"].push_back({{"type", "null"}});
  } else {
    schema = {{"anyOf", Json::array({std::move(schema), {{"type", "null"}}})}};
  }
  return schema;
}

// The shortest number that is read back as this float: 0.1, not 0.10000000149.
Json shortest(float value) { return Json::parse(fmt::format("{}", value)); }

Json parameter_schema(const SamplingParameter& parameter, const SamplingParams& defaults) {
  return std::visit(
      [&](auto member) -> Json {
        using Member = decltype(member);
        if constexpr (std::is_same_v<Member, float SamplingParams::*>) {
          return {{"type", "number"},
                  {"minimum", parameter.low},
                  {"maximum", parameter.high},
                  {"default", shortest(defaults.*member)}};
        } else if constexpr (std::is_same_v<Member, int SamplingParams::*>) {
          return {{"type", "integer"},
                  {"minimum", static_cast<int64_t>(parameter.low)},
                  {"maximum", static_cast<int64_t>(parameter.high)},
                  {"default", defaults.*member}};
        } else {
          return {{"type", "boolean"}, {"default", defaults.*member}};
        }
      },
      parameter.member);
}

// `defaults`: what a request has that sets nothing.
Json field_schema(const ApiField& field, const SamplingParams& defaults) {
  return std::visit(
      [&](auto read) -> Json {
        using Read = decltype(read);
        if constexpr (std::is_same_v<Read, ReadField>) {
          return Json::parse(field.schema);
        } else if constexpr (std::is_same_v<Read, const SamplingParameter*>) {
          return parameter_schema(*read, defaults);
        } else if constexpr (std::is_same_v<Read, int Request::*>) {
          return {{"type", "integer"}, {"minimum", -kMaxCount}, {"maximum", kMaxCount}};
        } else {
          return {{"type", "boolean"}};
        }
      },
      field.read);
}

std::string_view about(const ApiField& field) {
  const auto* parameter = std::get_if<const SamplingParameter*>(&field.read);
  return field.about.empty() && parameter ? (*parameter)->about : field.about;
}

std::string_view answer_name(Api api) {
  switch (api) {
    case Api::kChat:
      return "ChatAnswer";
    case Api::kCompletion:
      return "CompletionAnswer";
    case Api::kResponse:
      return "Response";
    case Api::kMessage:
      return "MessageAnswer";
    case Api::kEmbedding:
      return "Embeddings";
    case Api::kRerank:
      return "Ranking";
    case Api::kScore:
      return "Scores";
    case Api::kTokenize:
      return "Tokens";
    case Api::kDetokenize:
      return "Text";
    case Api::kCountTokens:
      return "TokenCount";
    case Api::kCountInput:
      return "InputTokens";
    case Api::kInfill:
    case Api::kLlamaCompletion:
      return "LlamaAnswer";
    case Api::kApplyTemplate:
      return "RenderedChat";
    case Api::kOllamaChat:
      return "OllamaChatAnswer";
    case Api::kOllamaGenerate:
      return "OllamaTextAnswer";
    case Api::kOllamaEmbed:
      return "OllamaEmbeddings";
    case Api::kOllamaEmbeddings:
      return "OllamaEmbedding";
    case Api::kOllamaShow:
      return "OllamaModel";
    case Api::kOllamaOptions:
      break;  // not an endpoint
  }
  return {};
}

std::string_view error_name(std::string_view path) {
  const ErrorShape shape = error_shape_of(path);
  return shape == ErrorShape::kAnthropic ? "AnthropicError" : shape == ErrorShape::kOllama ? "OllamaError" : "Error";
}

// The Content-Type of an API's streams; empty: it has none.
std::string_view stream_type(Api api) {
  switch (api) {
    case Api::kChat:
    case Api::kCompletion:
    case Api::kResponse:
    case Api::kMessage:
    case Api::kInfill:
    case Api::kLlamaCompletion:
      return "text/event-stream";
    case Api::kOllamaChat:
    case Api::kOllamaGenerate:
      return "application/x-ndjson";
    default:
      return {};
  }
}

Json json_content(Json schema) { return {{"application/json", {{"schema", std::move(schema)}}}}; }

Json post_operation(const ApiInfo& api, const SamplingDefaults& model) {
  Json content = json_content(reference(answer_name(api.api)));
  if (const std::string_view type = stream_type(api.api); type == "text/event-stream") {
    content[std::string(type)] = {{"schema", reference("Event")}};
  } else if (!type.empty()) {
    content[std::string(type)] = {{"schema", {{"description", "one such object on each line"}}}};
  }
  Json responses = {{"200", {{"description", "the answer"}, {"content", std::move(content)}}}};
  const Json error = json_content(reference(error_name(api.path)));
  for (const auto& [status, why] : {std::pair{"400", "a field is wrong or not supported"},
                                    {"404", "the model is not served here"},
                                    {"408", "the body did not arrive in time"},
                                    {"413", "the body is too large"},
                                    {"429", "the queue is full; Retry-After says when to try again"},
                                    {"500", "the server failed"},
                                    {"503", "the server is loading, stopping or out of memory"},
                                    {"504", "the timeout passed before the answer was complete"}}) {
    responses[status] = {{"description", why}, {"content", error}};
  }
  if (!stream_type(api.api).empty()) {
    responses["422"] = {{"description", "structured output reached a dead end: no token was left"}, {"content", error}};
  }
  return {{"operationId", std::string(api.path.substr(1))},
          {"summary", api.summary},
          {"requestBody", {{"required", true}, {"content", json_content(request_schema(api.api, model))}}},
          {"responses", std::move(responses)}};
}

Json get_operation(std::string_view summary, Json content, std::initializer_list<std::string_view> errors = {}) {
  Json responses = {{"200", {{"description", summary}, {"content", std::move(content)}}}};
  for (const std::string_view status : errors) {
    responses[std::string(status)] = {
        {"description", "see the error"},
        {"content", json_content(status == "503" ? Json{{"type", "object"}} : reference("Error"))}};
  }
  return {{"summary", summary}, {"responses", std::move(responses)}};
}

// For a server with keys.
void ask_for_key(Json& paths) {
  for (const auto& [path, operations] : paths.items()) {
    for (Json& operation : operations) {
      if (needs_no_key(path)) {
        operation["security"] = Json::array();
      } else {
        operation["responses"]["401"] = {{"description", "the key is missing or wrong"},
                                         {"headers", {{"WWW-Authenticate", {{"schema", {{"const", "Bearer"}}}}}}},
                                         {"content", json_content(reference(error_name(path)))}};
      }
    }
  }
}

// Either header carries the key.
constexpr std::string_view kSecuritySchemes = R"json({
  "bearer": {"type": "http", "scheme": "bearer"},
  "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"}
})json";

// Parts of requests, as "#/components/schemas/NAME".
constexpr std::string_view kRequests = R"json({
    "TextPart": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["type", "text"],
      "properties": {"type": {"const": "text"}, "text": {"type": "string"}}},
      {"description": "Anthropic's", "type": "object", "required": ["type"],
        "properties": {"type": {"enum": ["document", "search_result", "tool_reference"]}}}]},
    "TextParts": {"type": "array", "items": {"$ref": "#/components/schemas/TextPart"}},
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
    "AnswerPart": {"anyOf": [{"type": "object", "required": ["type", "refusal"], "properties": {"type": {"const": "refusal"},
        "refusal": {"type": "string"}}},
      {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["thinking", "reasoning", "redacted_thinking"]}}}]},
    "AnswerParts": {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/TextPart"},
      {"$ref": "#/components/schemas/AnswerPart"}]}},
    "CalledFunction": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"},
      "arguments": {"description": "an object, or JSON that spells one; anything else is shown to the model as written"}}},
    "Parameters": {"description": "a JSON Schema; an empty array is one without members", "anyOf": [
      {"type": "array", "maxItems": 0}, {"type": "object", "properties": {"type": {"enum": ["object", null]},
      "properties": {"type": ["object", "array", "null"], "maxItems": 0,
        "additionalProperties": {"anyOf": [{"type": ["object", "boolean"]}, {"type": "array", "maxItems": 0}]}},
      "required": {"type": ["array", "null"], "items": {"type": "string"}}}}]},
    "ToolName": {"type": "string", "pattern": "^[a-zA-Z0-9_.-]{1,128}$"},
    "Function": {"type": "object", "required": ["name"], "properties": {"name": {"$ref": "#/components/schemas/ToolName"},
      "description": {"type": ["string", "null"]}, "strict": {"type": ["boolean", "null"]},
      "parameters": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/Parameters"}]}}},
    "OtherTool": {"description": "left out, because this server cannot run it", "type": "object", "required": ["type"],
      "properties": {"type": {"type": "string", "minLength": 1, "not": {"enum": ["function", "custom"]}}}},
    "Tool": {"anyOf": [{"$ref": "#/components/schemas/OtherTool"},
      {"type": "object", "required": ["type"], "properties": {"type": {"const": "custom"}}},
      {"type": "object", "required": ["function"], "properties": {"type": {"enum": ["function", null]},
        "function": {"$ref": "#/components/schemas/Function"}}}]},
    "ResponseTool": {"anyOf": [{"$ref": "#/components/schemas/OtherTool"},
      {"type": "object", "required": ["type"], "properties": {"type": {"const": "custom"}}},
      {"allOf": [{"$ref": "#/components/schemas/Function"},
        {"type": "object", "properties": {"type": {"enum": ["function", null]}}}]}]},
    "MessageTool": {"anyOf": [{"$ref": "#/components/schemas/OtherTool"},
      {"type": "object", "required": ["name"], "properties": {"type": {"enum": ["custom", null]},
        "name": {"$ref": "#/components/schemas/ToolName"}, "description": {"type": ["string", "null"]},
        "strict": {"type": ["boolean", "null"]},
        "input_schema": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/Parameters"}]}}}]},
    "ToolChoice": {"anyOf": [{"enum": ["auto", "none", "required"]}, {"type": "object", "required": ["type"],
      "properties": {"type": {"enum": ["function", "allowed_tools"]}}}]},
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
    "TokenIds": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/TokenId"}},
    "MixedPrompt": {"type": "array", "minItems": 1,
      "items": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/TokenId"}]}},
    "ObjectPrompt": {"type": "object", "properties": {"prompt_string": {"type": "string"},
        "text": {"type": "string"}, "multimodal_data": {"type": ["array", "null"], "maxItems": 0}},
      "anyOf": [{"required": ["prompt_string"]}, {"required": ["text"]}]},
    "Prompts": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/ObjectPrompt"},
      {"$ref": "#/components/schemas/MixedPrompt"},
      {"type": "array", "minItems": 1, "maxItems": 2048, "items": {"anyOf": [{"type": "string"},
        {"$ref": "#/components/schemas/TokenIds"}, {"$ref": "#/components/schemas/ObjectPrompt"},
        {"$ref": "#/components/schemas/MixedPrompt"}]}}]}
  })json";
static_assert(kMaxPrompts == 2048);

// Answers and errors. Properties that are not required appear only on request.
constexpr std::string_view kAnswers = R"json({
  "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
    "required": ["message", "type", "param", "code"], "properties": {"message": {"type": "string"},
    "type": {"type": "string"}, "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}}},
  "AnthropicError": {"type": "object", "required": ["type", "error"], "properties": {"type": {"const": "error"},
    "error": {"type": "object", "required": ["type", "message"], "properties": {"type": {"type": "string"},
    "message": {"type": "string"}}}}},
  "Event": {"type": "object", "required": ["data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}}},
  "Usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens",
    "prompt_tokens_details"], "properties": {"prompt_tokens": {"type": "integer"},
    "completion_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
    "prompt_tokens_details": {"type": "object", "required": ["cached_tokens"],
      "properties": {"cached_tokens": {"type": "integer"}}},
    "speculative": {"type": "object", "required": ["drafted_tokens", "accepted_tokens"],
      "properties": {"drafted_tokens": {"type": "integer"}, "accepted_tokens": {"type": "integer"}}}}},
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
          "finish_reason": {"enum": ["stop", "length"]}}}}}},
  "Response": {"type": "object", "required": ["id", "object", "created_at", "status", "model", "output", "usage"],
    "properties": {"id": {"type": "string"}, "object": {"const": "response"}, "created_at": {"type": "integer"},
      "status": {"enum": ["completed", "incomplete"]}, "model": {"type": "string"},
      "output": {"type": "array", "items": {"type": "object", "required": ["id", "type", "status"],
        "properties": {"type": {"enum": ["message", "reasoning", "function_call"]}}}},
      "usage": {"type": "object", "required": ["input_tokens", "output_tokens", "total_tokens"]}}},
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
  "Embeddings": {"type": "object", "required": ["object", "data", "model", "usage"],
    "properties": {"id": {"type": "string"}, "object": {"const": "list"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "data": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["object", "index", "embedding"],
        "properties": {"object": {"const": "embedding"}, "index": {"type": "integer"},
          "embedding": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]}}}},
      "usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"]}}},
  "Ranking": {"type": "object", "required": ["id", "model", "usage", "results"],
    "properties": {"id": {"type": "string"}, "model": {"type": "string"},
      "usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"]},
      "results": {"type": "array", "items": {"type": "object", "required": ["index", "relevance_score"],
        "properties": {"index": {"type": "integer"}, "relevance_score": {"type": "number"},
          "document": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}}}}}},
  "Scores": {"type": "object", "required": ["id", "object", "created", "model", "data", "usage"],
    "properties": {"id": {"type": "string"}, "object": {"const": "list"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"]},
      "data": {"type": "array", "items": {"type": "object", "required": ["index", "object", "score"],
        "properties": {"index": {"type": "integer"}, "object": {"const": "score"}, "score": {"type": "number"}}}}}},
  "Tokens": {"type": "object", "required": ["tokens"], "description": "with content, only tokens",
    "properties": {"count": {"type": "integer"}, "max_model_len": {"type": "integer"},
      "tokens": {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/TokenId"}, {"type": "object"}]}},
      "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}}},
  "TokenizerInfo": {"type": "object", "required": ["vocab_size", "model_max_length", "bos_token", "eos_token",
    "chat_template", "added_tokens_decoder"], "properties": {"vocab_size": {"type": "integer"},
      "model_max_length": {"type": "integer"}, "add_bos_token": {"type": "boolean"}, "add_eos_token": {"type": "boolean"},
      "bos_token": {"type": ["string", "null"]}, "eos_token": {"type": ["string", "null"]},
      "unk_token": {"type": ["string", "null"]}, "pad_token": {"type": ["string", "null"]},
      "chat_template": {"type": ["string", "null"]}, "added_tokens_decoder": {"type": "object",
        "additionalProperties": {"type": "object", "required": ["content", "special"],
          "properties": {"content": {"type": "string"}, "special": {"type": "boolean"}}}}}},
  "TokenCount": {"type": "object", "required": ["input_tokens"], "properties": {"input_tokens": {"type": "integer"}}},
  "InputTokens": {"type": "object", "required": ["object", "input_tokens"],
    "properties": {"object": {"const": "response.input_tokens"}, "input_tokens": {"type": "integer"}}},
  "Text": {"type": "object", "required": ["prompt", "content"], "properties": {"prompt": {"type": "string"}, "content": {"type": "string"}}},
  "Model": {"type": "object", "required": ["id", "object", "created", "owned_by", "max_model_len", "type",
    "display_name", "created_at"],
    "properties": {"id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"},
      "owned_by": {"type": "string"}, "max_model_len": {"type": "integer"}, "type": {"const": "model"},
      "display_name": {"type": "string"}, "created_at": {"type": "string", "format": "date-time"}}},
  "Models": {"type": "object", "required": ["object", "data", "has_more", "first_id", "last_id", "models"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
      "has_more": {"const": false}, "first_id": {"type": "string"}, "last_id": {"type": "string"},
      "models": {"description": "for Codex CLI", "type": "array", "items": {"type": "object",
        "required": ["slug", "context_window"]}}}},
  "Status": {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
})json";

Json component_schemas(const ApiLimits& limits) {
  Json components = Json::parse(kRequests);
  components["TokenId"] = {{"type", "integer"}, {"minimum", 0}, {"maximum", limits.vocab_size - 1}};
  components["ModelName"] = {{"type", "string"}};
  if (limits.model_prefixes.empty()) components["ModelName"]["enum"] = limits.models;
  components["OllamaModelName"] = components["ModelName"];
  if (limits.model_prefixes.empty()) {
    for (const std::string& name : limits.models) components["OllamaModelName"]["enum"].push_back(name + ":latest");
  }
  components["OllamaOptions"] = request_schema(Api::kOllamaOptions, limits.sampling);
  components["Dimensions"] = {{"type", "integer"}, {"const", limits.embedding_size}};
  components.update(Json::parse(kAnswers));
  components.update(Json::parse(ollama_schemas()));
  components.update(Json::parse(llama_schemas()));
  return components;
}

}  // namespace

Json request_schema(Api api, const SamplingDefaults& model) {
  SamplingParams defaults;
  apply_defaults(defaults, model);
  Json properties = Json::object(), required = Json::array();
  for (const ApiField& field : api_fields()) {
    if (!is_of(field, api)) continue;
    Json schema = field_schema(field, defaults);
    if (takes_object(field))
      schema = {{"anyOf", Json::array({std::move(schema), {{"type", "array"}, {"maxItems", 0}}})}};
    if (is_required(field, api)) {
      required.push_back(field.name);
    } else {
      schema = nullable(std::move(schema));
    }
    if (!about(field).empty()) schema["description"] = about(field);
    properties[std::string(field.name)] = std::move(schema);
  }
  for (const RefusedField& field : refused_fields()) {
    if (!(field.apis & bits(api))) continue;
    Json schema = {{"enum", Json::parse(field.neutral)}};
    schema["enum"].push_back(nullptr);
    schema["description"] = fmt::format("not supported{}{}", field.advice.empty() ? "" : ": ", field.advice);
    properties[std::string(field.name)] = std::move(schema);
  }
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  if (api == Api::kTokenize) {
    schema["oneOf"] = Json::parse(R"([{"required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
                                      {"required": ["content"], "properties": {"content": {"not": {"type": "null"}}}},
                                      {"required": ["messages"], "properties": {"messages": {"type": "array"}}}])");
  }
  return schema;
}

std::string openapi_document(const ApiLimits& limits, std::string_view version, bool needs_key) {
  Json paths = Json::object();
  for (const ApiInfo& api : api_list()) paths[std::string(api.path)] = {{"post", post_operation(api, limits.sampling)}};
  const auto add = [&](const char* path, Json operation) { paths[path] = {{"get", std::move(operation)}}; };
  add("/v1/models", get_operation("the served models", json_content(reference("Models"))));
  add("/v1/models/{id}", get_operation("one of the served models", json_content(reference("Model")), {"404"}));
  paths["/v1/models/{id}"]["get"]["parameters"] =
      Json::parse(R"([{"name": "id", "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}])");
  add("/health", get_operation("liveness: whether the process answers", json_content(reference("Status")), {"503"}));
  add("/ready",
      get_operation("readiness: whether the server accepts requests", json_content(reference("Status")), {"503"}));
  add("/tokenizer_info",
      get_operation("the tokenizer, as a tokenizer_config.json", json_content(reference("TokenizerInfo")), {"400"}));
  add("/version", get_operation("the program's version", json_content({{"type", "object"}})));
  add("/api/tags", get_operation("the served models, as Ollama lists them", json_content(reference("OllamaModels"))));
  add("/api/ps", get_operation("the loaded models, as Ollama lists them", json_content(reference("OllamaModels"))));
  add("/api/version", get_operation("the version of Ollama whose API this is", json_content({{"type", "object"}})));
  add("/props",
      get_operation("the server's properties, as llama.cpp gives them", json_content(reference("LlamaProps"))));
  add("/slots", get_operation("the sequences that run, as llama.cpp's slots", json_content(reference("LlamaSlots"))));
  const Json text = {{"text/plain", {{"schema", {{"type", "string"}}}}}};
  add("/metrics", get_operation("metrics for Prometheus", text));
  add("/openapi.json", get_operation("this document", json_content({{"type", "object"}})));

  Json document = {{"openapi", "3.1.0"},
                   {"info", {{"title", "Quire"}, {"version", version}}},
                   {"components", {{"schemas", component_schemas(limits)}}}};
  if (needs_key) {
    ask_for_key(paths);
    document["components"]["securitySchemes"] = Json::parse(kSecuritySchemes);
    document["security"] = Json::parse(R"([{"bearer": []}, {"api_key": []}])");
  }
  document["paths"] = std::move(paths);
  return dump(document);
}

}  // namespace quire
