#include "server/endpoints/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "server/api/answer/answer.h"
#include "server/api/definition.h"
#include "server/api/request/fields.h"
#include "server/api/routes.h"
#include "server/api/store_definition.h"

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

std::string_view error_name(ErrorShape shape) {
  return shape == ErrorShape::kAnthropic ? "AnthropicError" : shape == ErrorShape::kOllama ? "OllamaError" : "Error";
}

Json json_content(Json schema) { return {{"application/json", {{"schema", std::move(schema)}}}}; }

Json body_operation(const ApiDefinition& api, const SamplingDefaults& model) {
  Json content = api.answer_schema.empty() ? Json::object() : json_content(reference(api.answer_schema));
  if (api.stream_type == "text/event-stream") {
    content[std::string(api.stream_type)] = {{"schema", reference("Event")}};
  } else if (!api.stream_type.empty()) {
    content[std::string(api.stream_type)] = {{"schema", {{"description", "one such object on each line"}}}};
  }
  Json responses = {{"200", {{"description", "the answer"}, {"content", std::move(content)}}}};
  const Json error = json_content(reference(error_name(api.errors)));
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
  if (api.for_operators || api.task)
    responses["403"] = {{"description", "only the operator may do this (--admin-key)"}, {"content", error}};
  if (!api.stream_type.empty()) {
    responses["422"] = {{"description", "structured output reached a dead end: no token was left"}, {"content", error}};
  }
  return {{"operationId", std::string(api.path.substr(1))},
          {"summary", api.summary},
          {"requestBody", {{"required", true}, {"content", json_content(request_schema(api, model))}}},
          {"responses", std::move(responses)}};
}

Json get_operation(const GetDefinition& get) {
  const bool text = get.content_type == "text/plain" || get.content_type == "text/html";
  const Json schema = text                        ? Json{{"type", "string"}}
                      : get.answer_schema.empty() ? Json{{"type", "object"}}
                                                  : reference(get.answer_schema);
  Json content = {{std::string(get.content_type), {{"schema", schema}}}};
  Json responses = {{"200", {{"description", get.summary}, {"content", std::move(content)}}}};
  if (!get.error.empty()) {
    responses[std::string(get.error)] = {
        {"description", "see the error"},
        {"content", json_content(get.error == "503" ? Json{{"type", "object"}} : reference("Error"))}};
  }
  Json operation = {{"summary", get.summary}, {"responses", std::move(responses)}};
  if (!get.query_schema.empty()) operation["parameters"] = Json::parse(get.query_schema);
  if (get.path.ends_with("{id}")) {
    operation["parameters"] = Json::parse(
        R"([{"name": "id", "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}])");
  }
  return operation;
}

Json store_operation(const StoreDefinition& store) {
  Json content = store.answer_schema.empty() ? Json{{"application/octet-stream", {{"schema", Json::object()}}}}
                                             : json_content(reference(store.answer_schema));
  Json responses = {{"200", {{"description", "the answer"}, {"content", std::move(content)}}}};
  const Json error = json_content(reference("Error"));
  for (const auto& [status, why] :
       {std::pair{"400", "a field is wrong"},
        {"404", "this API key has nothing of this name, or the server was started without --files-dir"},
        {"408", "the body did not arrive in time"},
        {"409", "what is asked for does not fit what there is"},
        {"413", "the body or the file is too large"},
        {"415", "an upload must be a form"},
        {"429", "there are too many batches"},
        {"500", "the server failed"},
        {"503", "the server is loading, stopping or out of room"}}) {
    responses[status] = {{"description", why}, {"content", error}};
  }
  Json operation = {{"summary", store.summary}, {"responses", std::move(responses)}};
  Json parameters = store.query_schema.empty() ? Json::array() : Json::parse(store.query_schema);
  if (store.path.find("{id}") != store.path.npos)
    parameters.push_back(
        {{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}, {"minLength", 1}}}});
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (!store.body_schema.empty())
    operation["requestBody"] = {
        {"required", true},
        {"content",
         {{store.receive ? "multipart/form-data" : "application/json", {{"schema", Json::parse(store.body_schema)}}}}}};
  return operation;
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
                                         {"content", json_content(reference(error_name(error_shape_of(path))))}};
      }
    }
  }
}

// Either header carries the key.
constexpr std::string_view kSecuritySchemes = R"json({
  "bearer": {"type": "http", "scheme": "bearer"},
  "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"}
})json";

// Parts that several endpoints have, as "#/components/schemas/NAME". Properties that are not required appear only on
// request.
constexpr std::string_view kShared = R"json({
  "TextPart": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["type", "text"],
      "properties": {"type": {"const": "text"}, "text": {"type": "string"}}},
      {"description": "Anthropic's", "type": "object", "required": ["type"],
        "properties": {"type": {"enum": ["document", "search_result", "tool_reference"]}}}]},
  "TextParts": {"type": "array", "items": {"$ref": "#/components/schemas/TextPart"}},
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
        {"$ref": "#/components/schemas/MixedPrompt"}]}}]},
  "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
    "required": ["message", "type", "param", "code"], "properties": {"message": {"type": "string"},
    "type": {"type": "string"}, "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}}},
  "Event": {"type": "object", "required": ["data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}}},
  "Usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens",
    "prompt_tokens_details"], "properties": {"prompt_tokens": {"type": "integer"},
    "completion_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
    "prompt_tokens_details": {"type": "object", "required": ["cached_tokens"],
      "properties": {"cached_tokens": {"type": "integer"}}},
    "speculative": {"type": "object", "required": ["drafted_tokens", "accepted_tokens"],
      "properties": {"drafted_tokens": {"type": "integer"}, "accepted_tokens": {"type": "integer"}}}}}
})json";
static_assert(kMaxPrompts == 2048);

Json component_schemas(const ApiLimits& limits) {
  Json components = Json::parse(kShared);
  components["TokenId"] = {{"type", "integer"}, {"minimum", 0}, {"maximum", limits.vocab_size - 1}};
  components["ModelName"] = {{"type", "string"}};
  if (limits.model_prefixes.empty()) components["ModelName"]["enum"] = limits.models;
  components["OllamaModelName"] = components["ModelName"];
  if (limits.model_prefixes.empty()) {
    for (const std::string& name : limits.models) components["OllamaModelName"]["enum"].push_back(name + ":latest");
  }
  components["Dimensions"] = {{"type", "integer"}, {"const", limits.embedding_size}};
  for (const ApiDefinition* api : all_apis()) {
    if (!api->schemas.empty()) components.update(Json::parse(api->schemas));
    if (api->options) components["OllamaOptions"] = request_schema(*api->options, limits.sampling);
  }
  for (const GetDefinition* get : all_gets()) {
    if (!get->schemas.empty()) components.update(Json::parse(get->schemas));
  }
  for (const StoreDefinition* store : all_stores()) {
    if (!store->schemas.empty()) components.update(Json::parse(store->schemas));
  }
  return components;
}

}  // namespace

Json request_schema(const ApiDefinition& api, const SamplingDefaults& model) {
  SamplingParams defaults;
  apply_defaults(defaults, model);
  Json properties = Json::object(), required = Json::array();
  for (const ApiField& field : api.fields) {
    if (properties.contains(std::string(field.name))) continue;
    Json schema = field_schema(field, defaults);
    if (takes_object(field))
      schema = {{"anyOf", Json::array({std::move(schema), {{"type", "array"}, {"maxItems", 0}}})}};
    if (std::ranges::find(api.required, field.name) != api.required.end()) {
      required.push_back(field.name);
    } else {
      schema = nullable(std::move(schema));
    }
    if (!about(field).empty()) schema["description"] = about(field);
    properties[std::string(field.name)] = std::move(schema);
  }
  for (const RefusedField& field : api.refused) {
    Json schema = {{"enum", Json::parse(field.neutral)}};
    schema["enum"].push_back(nullptr);
    schema["description"] = fmt::format("not supported{}{}", field.advice.empty() ? "" : ": ", field.advice);
    properties[std::string(field.name)] = std::move(schema);
  }
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  if (!api.body_schema.empty()) schema.update(Json::parse(api.body_schema));
  return schema;
}

std::string openapi_document(const ApiLimits& limits, std::string_view version, bool needs_key) {
  Json paths = Json::object();
  const auto lower_case = [](std::string_view text) {
    std::string lower(text);
    std::ranges::transform(lower, lower.begin(), [](char c) { return static_cast<char>(c | 32); });
    return lower;
  };
  for (const ApiDefinition* api : all_apis())
    paths[std::string(api->path)] = {{lower_case(api->method), body_operation(*api, limits.sampling)}};
  for (const GetDefinition* get : all_gets()) {
    if (!get->summary.empty()) paths[std::string(get->path)] = {{"get", get_operation(*get)}};
  }
  for (const StoreDefinition* store : all_stores()) {
    paths[std::string(store->path)][lower_case(store->method)] = store_operation(*store);
  }

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
