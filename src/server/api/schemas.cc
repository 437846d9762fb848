#include "server/api/schemas.h"

namespace quire {
namespace {

constexpr std::string_view kRequests = R"json({
    "TextPart": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["type", "text"],
      "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}]},
    "TextParts": {"type": "array", "items": {"$ref": "#/components/schemas/TextPart"}},
    "Message": {"type": "object", "required": ["role"],
      "properties": {"role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
        "content": {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/components/schemas/TextParts"}]},
        "tool_calls": {"type": ["array", "null"], "maxItems": 1024, "items": {"type": "object",
          "required": ["function"], "properties": {"function": {"type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}}}}}}},
      "anyOf": [{"properties": {"role": {"const": "assistant"}}},
                {"required": ["content"], "properties": {"content": {"type": ["string", "array"]}}}]},
    "TextMessage": {"type": "object", "required": ["role", "content"],
      "properties": {"role": {"enum": ["user", "assistant"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"anyOf": [
          {"$ref": "#/components/schemas/TextPart"},
          {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["thinking", "redacted_thinking"]}}}
        ]}}]}}},
    "Item": {"anyOf": [{"type": "object", "required": ["type"], "properties": {"type": {"const": "reasoning"}}},
      {"$ref": "#/components/schemas/MessageItem"}]},
    "MessageItem": {"type": "object", "required": ["role", "content"],
      "properties": {"type": {"const": "message"}, "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"anyOf": [{"type": "string"},
          {"type": "object", "required": ["type", "text"], "properties": {"type": {"enum": ["input_text", "output_text"]},
            "text": {"type": "string"}}}]}}]}}},
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
      "properties": {"cached_tokens": {"type": "integer"}}}}},
  "ChatAnswer": {"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {"id": {"type": "string"}, "object": {"const": "chat.completion"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"},
      "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
        "required": ["index", "message", "logprobs", "finish_reason"], "properties": {"index": {"type": "integer"},
          "message": {"type": "object", "required": ["role", "content"],
            "properties": {"role": {"const": "assistant"}, "content": {"type": "string"}}},
          "logprobs": {"type": ["object", "null"]}, "finish_reason": {"enum": ["stop", "length"]}}}}}},
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
      "output": {"type": "array", "items": {"type": "object", "required": ["id", "type", "role", "status", "content"]}},
      "usage": {"type": "object", "required": ["input_tokens", "output_tokens", "total_tokens"]}}},
  "MessageAnswer": {"type": "object",
    "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
    "properties": {"id": {"type": "string"}, "type": {"const": "message"}, "role": {"const": "assistant"},
      "model": {"type": "string"}, "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence"]},
      "stop_sequence": {"type": ["string", "null"]},
      "content": {"type": "array", "items": {"type": "object", "required": ["type", "text"],
        "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}},
      "usage": {"type": "object", "required": ["input_tokens", "output_tokens"]}}},
  "Embeddings": {"type": "object", "required": ["object", "data", "model", "usage"],
    "properties": {"object": {"const": "list"}, "model": {"type": "string"},
      "data": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["object", "index", "embedding"],
        "properties": {"object": {"const": "embedding"}, "index": {"type": "integer"},
          "embedding": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]}}}},
      "usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"]}}},
  "Tokens": {"type": "object", "required": ["count", "max_model_len", "tokens", "token_strs"],
    "properties": {"count": {"type": "integer"}, "max_model_len": {"type": "integer"},
      "tokens": {"type": "array", "items": {"$ref": "#/components/schemas/TokenId"}},
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
  "Text": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
  "Model": {"type": "object", "required": ["id", "object", "created", "owned_by", "max_model_len"],
    "properties": {"id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"},
      "owned_by": {"type": "string"}, "max_model_len": {"type": "integer"}}},
  "Models": {"type": "object", "required": ["object", "data"], "properties": {"object": {"const": "list"},
    "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}},
  "Status": {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
})json";

}  // namespace

Json component_schemas(const ApiLimits& limits) {
  Json components = Json::parse(kRequests);
  components["TokenId"] = {{"type", "integer"}, {"minimum", 0}, {"maximum", limits.vocab_size - 1}};
  components["ModelName"] = {{"type", "string"}, {"enum", limits.models}};
  components["Dimensions"] = {{"type", "integer"}, {"const", limits.hidden}};
  components.update(Json::parse(kAnswers));
  return components;
}

}  // namespace quire
