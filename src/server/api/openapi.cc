#include "server/api/openapi.h"

#include <fmt/format.h>

#include <type_traits>

#include "server/api/answer_parts.h"
#include "server/api/fields.h"
#include "server/api/routes.h"
#include "server/api/schemas.h"

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

Json field_schema(const ApiField& field) {
  return std::visit(
      [&](auto read) -> Json {
        using Read = decltype(read);
        if constexpr (std::is_same_v<Read, ReadField>) {
          return Json::parse(field.schema);
        } else if constexpr (std::is_same_v<Read, float SamplingParams::*>) {
          return {{"type", "number"}, {"minimum", field.low}, {"maximum", field.high}};
        } else if constexpr (std::is_same_v<Read, int SamplingParams::*> || std::is_same_v<Read, int Request::*>) {
          return {{"type", "integer"},
                  {"minimum", static_cast<int64_t>(field.low)},
                  {"maximum", static_cast<int64_t>(field.high)}};
        } else {
          return {{"type", "boolean"}};
        }
      },
      field.read);
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
    case Api::kTokenize:
      return "Tokens";
    case Api::kDetokenize:
      return "Text";
    case Api::kCountTokens:
      return "TokenCount";
  }
  return {};
}

std::string_view error_name(std::string_view path) {
  return error_shape_of(path) == ErrorShape::kAnthropic ? "AnthropicError" : "Error";
}

Json json_content(Json schema) { return {{"application/json", {{"schema", std::move(schema)}}}}; }

Json post_operation(const ApiInfo& api) {
  const bool generates =
      api.api == Api::kChat || api.api == Api::kCompletion || api.api == Api::kResponse || api.api == Api::kMessage;
  Json content = json_content(reference(answer_name(api.api)));
  if (generates) content["text/event-stream"] = {{"schema", reference("Event")}};
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
  return {{"operationId", std::string(api.path.substr(1))},
          {"summary", api.summary},
          {"requestBody", {{"required", true}, {"content", json_content(request_schema(api.api))}}},
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

}  // namespace

Json request_schema(Api api) {
  Json properties = Json::object(), required = Json::array();
  for (const ApiField& field : api_fields()) {
    if (!is_of(field, api)) continue;
    Json schema = field_schema(field);
    if (is_required(field, api)) {
      required.push_back(field.name);
    } else {
      schema = nullable(std::move(schema));
    }
    if (!field.about.empty()) schema["description"] = field.about;
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
                                      {"required": ["messages"], "properties": {"messages": {"type": "array"}}}])");
  }
  return schema;
}

std::string openapi_document(const ApiLimits& limits, std::string_view version, bool needs_key) {
  Json paths = Json::object();
  for (const ApiInfo& api : api_list()) paths[std::string(api.path)] = {{"post", post_operation(api)}};
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
