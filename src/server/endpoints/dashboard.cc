// /dashboard: the live page, its files, and the stream of what the engine does.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "server/api/definition.h"
#include "server/api/models.h"
#include "server/api/store_definition.h"
#include "server/endpoints/dashboard_files.h"

namespace quire {
namespace {

// Nothing from elsewhere, no inline script or style: text that gets into the page by mistake cannot run. Applies to the
// page and its modules alike.
constexpr const char* kDashboardPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

std::string_view type_of_file(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

void require_dashboard(const Models& models) {
  if (models.options().dashboard) return;
  throw ApiError(404, "the dashboard is switched off (--no-dashboard)", "invalid_request_error", {}, "unknown_url");
}

Reply dashboard_file(const Models& models, std::string_view name) {
  require_dashboard(models);
  const auto file = std::ranges::find(dashboard_files(), name, &DashboardFile::name);
  if (file == dashboard_files().end()) {
    throw ApiError(404, fmt::format("the dashboard has no file {}", describe(Json(name))), "invalid_request_error", {},
                   "unknown_url");
  }
  return {.body = std::string(file->content),
          .content_type = std::string(type_of_file(name)),
          .headers = {{"Content-Security-Policy", kDashboardPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

// Those that the page lets people choose from: each model once, by its first name.
Reply list_watched(const Models& models, const GetRequest&) {
  require_dashboard(models);
  Json list = Json::array();
  for (const size_t model : models.all()) {
    const ListedModel listed = models.list(model);
    list.push_back({{"name", listed.names.names.front()}, {"status", name(listed.state)}});
  }
  return {.body = dump({{"models", std::move(list)}})};
}

LiveFeed& watched_feed(const Models& models, const GetRequest& request) {
  const std::string name = query_parameter(request.query, "model").value_or("");
  if (name.empty()) return models.feed();
  const size_t model = models.find(name);
  const std::vector<std::string> names = models.list(model).all_names();
  if (std::ranges::find(names, name) == names.end())
    throw ApiError(404, fmt::format("the model {} is not served here", describe(Json(name))), "invalid_request_error",
                   "model", "model_not_found");
  return models.feed(model);
}

// The page and its files say nothing about the server, so they need no key: the page asks for it.
constexpr GetDefinition kDashboardGets[] = {
    {.path = "/dashboard",
     .summary = "a page that shows what the server is doing",
     .reply = [](const Models& models, const GetRequest&) { return dashboard_file(models, "index.html"); },
     .needs_key = false,
     .content_type = "text/html",
     .error = "404"},
    {.path = "/dashboard/events",
     .summary = "what the server is doing, several times a second, until the client leaves (docs/dashboard.md)",
     .reply = [](const Models& models, const GetRequest&) -> Reply {
       require_dashboard(models);
       return {.body = {}, .content_type = "text/event-stream"};
     },
     .answer_schema = "Event",
     .content_type = "text/event-stream",
     .error = "404",
     .query_schema = R"([{"name": "model", "in": "query", "schema": {"$ref": "#/components/schemas/ModelName"},
       "description": "by default, the first model that is loaded"}])",
     .live = watched_feed},
    {.path = "/dashboard/models",
     .summary = "the models that /dashboard/events can show, and whether they are loaded",
     .reply = list_watched,
     .answer_schema = "WatchedModels",
     .error = "404",
     .schemas =
         R"({"WatchedModels": {"type": "object", "required": ["models"], "properties": {"models": {"type": "array",
       "items": {"type": "object", "required": ["name", "status"], "properties": {"name": {"type": "string"},
         "status": {"enum": ["unloaded", "loading", "loaded", "unloading"]}}}}}}})"},
    {.path = "/dashboard/{id}",
     .summary = {},
     .reply = [](const Models& models, const GetRequest& request) { return dashboard_file(models, request.argument); },
     .needs_key = false},
};

}  // namespace

std::span<const GetDefinition> dashboard_gets() { return kDashboardGets; }

}  // namespace quire
