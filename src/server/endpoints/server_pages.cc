// What a server says about itself: models, health, metrics, its own description.
#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "server/api/models.h"
#include "server/endpoints/home_page.h"
#include "server/endpoints/openapi.h"

namespace quire {
namespace {

Json model_json(const ListedModel& model, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "quire"},
          {"max_model_len", model.max_model_len},
          {"status", {{"value", quire::name(model.state)}}},  // llama.cpp's
          {"type", "model"},                                  // this and the next two: Anthropic's
          {"display_name", name},
          {"created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(model.created)))}};
}

// vLLM's: an adapter is a model that has a parent.
Json adapter_json(const ListedModel& model, const std::string& name) {
  Json json = model_json(model, name);
  json["parent"] = model.names.names.front();
  return json;
}

// As Codex CLI reads it. Its own instructions stay: releases that want "base_instructions" here refuse the list, and
// describe the model by themselves.
Json codex_model_json(const ListedModel& model, const std::string& name) {
  const int context = model.max_model_len;
  return {{"slug", name},
          {"display_name", name},
          {"description", nullptr},
          {"supported_reasoning_levels", Json::array()},
          {"shell_type", "default"},
          {"visibility", "list"},
          {"supported_in_api", true},
          {"priority", 0},
          {"availability_nux", nullptr},
          {"upgrade", nullptr},
          {"supports_reasoning_summaries", false},
          {"support_verbosity", false},
          {"default_verbosity", nullptr},
          {"apply_patch_tool_type", nullptr},
          {"truncation_policy", {{"mode", "bytes"}, {"limit", 10'000}}},
          {"supports_parallel_tool_calls", true},
          {"context_window", context},
          {"max_context_window", context},
          {"experimental_supported_tools", Json::array()},
          {"input_modalities", Json::array({"text"})}};
}

// For clients of OpenAI (object, data), Anthropic (has_more and ids), and Codex CLI (models).
Reply list_models(const Models& models, const GetRequest&) {
  Json data = Json::array(), codex = Json::array();
  for (const size_t i : models.all()) {
    const ListedModel model = models.list(i);
    for (const std::string& name : model.all_names()) {
      data.push_back(model_json(model, name));
      codex.push_back(codex_model_json(model, name));
    }
    for (const std::string& name : model.adapters) {
      data.push_back(adapter_json(model, name));
      codex.push_back(codex_model_json(model, name));
    }
  }
  const Json first = data.front()["id"], last = data.back()["id"];
  return {.body = dump({{"object", "list"},
                        {"data", std::move(data)},
                        {"has_more", false},
                        {"first_id", first},
                        {"last_id", last},
                        {"models", std::move(codex)}})};
}

Reply show_model(const Models& models, const GetRequest& request) {
  const std::string name =
      request.argument.ends_with('/') ? request.argument.substr(0, request.argument.size() - 1) : request.argument;
  for (const std::string& asked : {name, request.argument}) {
    const ListedModel model = models.list(models.find(asked));
    const bool is_adapter = std::ranges::find(model.adapters, asked) != model.adapters.end();
    if (is_adapter && !model.names.has(asked)) return {.body = dump(adapter_json(model, asked))};
    if (model.names.serves(asked) || std::ranges::find(model.aliases, asked) != model.aliases.end())
      return {.body = dump(model_json(model, asked))};
  }
  throw ApiError(404,
                 fmt::format("the model {} is not served here; GET /v1/models lists the served models",
                             describe(Json(request.argument))),
                 "invalid_request_error", "model", "model_not_found");
}

Reply home(const Models& models, const GetRequest& request) {
  if (request.plain) return {.body = "Ollama is running", .content_type = "text/plain; charset=utf-8"};
  const ServiceOptions& options = models.options();
  return home_page({.url = request.url,
                    .version = options.needs_key ? "" : options.version,
                    .model = options.needs_key ? "" : models.list(0).names.names.front(),
                    .dashboard = options.dashboard});
}

Reply status(const GetRequest& request, std::string_view word) {
  if (request.stopping) return {.status = 503, .body = R"({"status":"stopping"})"};
  return {.body = fmt::format(R"({{"status":"{}"}})", word)};
}

Reply openapi(const Models& models, const GetRequest&) {
  std::vector<std::string> names, prefixes;
  const ApiLimits limits = models.limits(names, prefixes);
  return {.body = openapi_document(limits, models.options().version, models.options().needs_key)};
}

constexpr std::string_view kPageSchemas = R"json({
  "Model": {"type": "object", "required": ["id", "object", "created", "owned_by", "max_model_len", "status", "type",
    "display_name", "created_at"],
    "properties": {"id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"},
      "owned_by": {"type": "string"}, "max_model_len": {"type": "integer"},
      "parent": {"type": "string", "description": "of a LoRA adapter: the model"},
      "status": {"type": "object", "required": ["value"], "properties": {"value": {"enum": ["unloaded", "loading", "loaded", "unloading"]}}},
      "type": {"const": "model"},
      "display_name": {"type": "string"}, "created_at": {"type": "string", "format": "date-time"}}},
  "Models": {"type": "object", "required": ["object", "data", "has_more", "first_id", "last_id", "models"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
      "has_more": {"const": false}, "first_id": {"type": "string"}, "last_id": {"type": "string"},
      "models": {"description": "for Codex CLI", "type": "array", "items": {"type": "object",
        "required": ["slug", "context_window"]}}}},
  "Status": {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
})json";

constexpr GetDefinition kPages[] = {
    {.path = "/", .summary = {}, .reply = home, .needs_key = false},
    {.path = "/v1/models",
     .summary = "the served models",
     .reply = list_models,
     .answer_schema = "Models",
     .schemas = kPageSchemas},
    {.path = "/v1/models/{id}",
     .summary = "one of the served models",
     .reply = show_model,
     .answer_schema = "Model",
     .error = "404"},
    {.path = "/health",
     .summary = "liveness: whether the process answers",
     .reply = [](const Models&, const GetRequest& request) { return status(request, "ok"); },
     .needs_key = false,
     .answer_schema = "Status",
     .error = "503"},
    {.path = "/ready",
     .summary = "readiness: whether the server accepts requests",
     .reply = [](const Models&, const GetRequest& request) { return status(request, "ready"); },
     .needs_key = false,
     .answer_schema = "Status",
     .error = "503"},
    {.path = "/version",
     .summary = "the program's version",
     .reply = [](const Models& models, const GetRequest&) -> Reply {
       return {.body = dump({{"version", models.options().version}})};
     }},
    {.path = "/metrics",
     .summary = "metrics for Prometheus",
     .reply = [](const Models& models, const GetRequest&) -> Reply {
       return {.body = models.scrape(), .content_type = "text/plain; version=0.0.4; charset=utf-8"};
     },
     .needs_key = false,
     .content_type = "text/plain"},
    {.path = "/openapi.json", .summary = "this document", .reply = openapi},
};

}  // namespace

std::span<const GetDefinition> server_pages() { return kPages; }

}  // namespace quire
