// Parts of /openapi.json.
#include "server/endpoints/ollama.h"

namespace quire {

std::string_view ollama_schemas() {
  return R"json({
  "OllamaMessage": {"type": "object", "required": ["role"],
    "properties": {"role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
      "content": {}, "thinking": {"type": ["string", "null"]},
      "tool_name": {"type": ["string", "null"]}, "tool_call_id": {"type": ["string", "null"]},
      "name": {"type": ["string", "null"]}, "images": {"type": ["array", "null"], "maxItems": 0},
      "tool_calls": {"type": ["array", "null"], "maxItems": 1024, "items": {"type": "object",
        "required": ["function"], "properties": {"id": {"type": ["string", "null"]},
          "function": {"$ref": "#/components/schemas/CalledFunction"}}}}},
    "anyOf": [{"properties": {"role": {"const": "assistant"}, "content": {"type": ["string", "null"]}}},
              {"properties": {"role": {"const": "tool"}}},
              {"required": ["content"], "properties": {"role": {"enum": ["system", "developer", "user"]}, "content": {"type": "string"}}}]},
  "OllamaError": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
  "OllamaChatAnswer": {"type": "object", "required": ["model", "created_at", "message", "done"],
    "properties": {"model": {"type": "string"}, "created_at": {"type": "string", "format": "date-time"},
      "done": {"type": "boolean"}, "done_reason": {"enum": ["stop", "length", "load", "unload"]},
      "message": {"type": "object", "required": ["role", "content"], "properties": {"role": {"const": "assistant"},
        "content": {"type": "string"}, "thinking": {"type": "string"}, "tool_calls": {"type": "array",
          "items": {"type": "object", "required": ["function"], "properties": {"id": {"type": "string"},
            "function": {"type": "object", "required": ["name", "arguments"],
              "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}}}}}}}},
      "logprobs": {"type": "array"}, "total_duration": {"type": "integer"}, "load_duration": {"type": "integer"},
      "prompt_eval_count": {"type": "integer"}, "prompt_eval_duration": {"type": "integer"},
      "eval_count": {"type": "integer"}, "eval_duration": {"type": "integer"}}},
  "OllamaTextAnswer": {"type": "object", "required": ["model", "created_at", "response", "done"],
    "properties": {"model": {"type": "string"}, "created_at": {"type": "string", "format": "date-time"},
      "response": {"type": "string"}, "thinking": {"type": "string"}, "done": {"type": "boolean"},
      "done_reason": {"enum": ["stop", "length", "load", "unload"]}, "logprobs": {"type": "array"},
      "total_duration": {"type": "integer"}, "load_duration": {"type": "integer"},
      "prompt_eval_count": {"type": "integer"}, "prompt_eval_duration": {"type": "integer"},
      "eval_count": {"type": "integer"}, "eval_duration": {"type": "integer"}}},
  "OllamaEmbeddings": {"type": "object", "required": ["model", "embeddings", "total_duration", "prompt_eval_count"],
    "properties": {"model": {"type": "string"}, "embeddings": {"type": "array", "minItems": 1,
      "items": {"type": "array", "items": {"type": "number"}}}}},
  "OllamaEmbedding": {"type": "object", "required": ["embedding"],
    "properties": {"embedding": {"type": "array", "items": {"type": "number"}}}},
  "OllamaModel": {"type": "object", "required": ["parameters", "template", "details", "model_info", "capabilities"],
    "properties": {"template": {"type": "string"}, "details": {"type": "object"}, "model_info": {"type": "object"},
      "capabilities": {"type": "array", "items": {"enum": ["completion", "tools", "thinking", "insert"]}}}},
  "OllamaModels": {"type": "object", "required": ["models"], "properties": {"models": {"type": "array",
    "items": {"type": "object", "required": ["name", "model", "size", "digest", "details"]}}}}
})json";
}

}  // namespace quire
