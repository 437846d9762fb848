#include "server/api/service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>

#include "server/api/fields.h"
#include "server/api/openapi.h"
#include "server/api/shapes.h"

namespace quire {
namespace {

constexpr size_t kMaxLoggedFields = 256;

struct GetRow {
  std::string_view path;
  Endpoint endpoint;
};
constexpr GetRow kGets[] = {
    {"/health", Endpoint::kHealth},
    {"/ready", Endpoint::kReady},
    {"/version", Endpoint::kVersion},
    {"/openapi.json", Endpoint::kOpenApi},
    {"/metrics", Endpoint::kMetrics},
    {"/v1/models", Endpoint::kModels},
    {"/tokenizer_info", Endpoint::kTokenizerInfo},
};
constexpr std::string_view kModelPath = "/v1/models/{id}", kModelPrefix = "/v1/models/";

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// "/models/SmolLM2.Q4_1.gguf" is served as "SmolLM2.Q4_1", and under the full path too.
std::vector<std::string> default_names(const std::string& asked) {
  std::filesystem::path path(asked);
  if (path.filename().empty()) path = path.parent_path();  // "folder/"
  std::string name = path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
  if (name.empty() || name == asked) return {asked};
  return {std::move(name), asked};
}

}  // namespace

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint64_t random_u64() {
  thread_local std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::string path_of_target(std::string_view target) {
  const size_t scheme = target.starts_with('/') ? target.npos : target.find("://");
  if (scheme != target.npos) target.remove_prefix(std::min(target.find('/', scheme + 3), target.size()));
  return percent_decoded(target.substr(0, target.find_first_of("?#")));
}

ErrorShape error_shape_of(std::string_view path) {
  return path == api_info(Api::kMessage).path ? ErrorShape::kAnthropic : ErrorShape::kOpenAi;
}

Reply error_reply(const ApiError& error, ErrorShape shape) {
  Reply reply{.status = error.status, .body = error_body(error, shape)};
  if (error.retry_after > 0) reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  return reply;
}

Service::Service(Completer& completer, ServiceOptions options)
    : completer_(completer), options_(std::move(options)), started_(unix_seconds()) {
  const ModelInfo& info = completer_.info();
  if (options_.model_names.empty()) options_.model_names = default_names(info.name);
  metrics_ = std::make_shared<Metrics>(options_.model_names.front(), info.max_model_len, options_.metrics_prefix,
                                       completer_.read_bandwidth());
  admission_ = std::make_shared<Admission>(options_.max_running + options_.max_queue);
}

Route Service::route(std::string_view method, std::string_view path, std::string& allow) const {
  const auto fits = [&](std::string_view allowed) {
    if (allowed == method || (allowed == "GET" && method == "HEAD")) return true;
    allow = allowed == "GET" ? "GET, HEAD" : allowed;
    return false;
  };
  const auto wrong_method = [&] {
    return ApiError(405, fmt::format("{} is not allowed here; allowed: {}", describe(Json(method)), allow),
                    "invalid_request_error", {}, "method_not_allowed");
  };
  for (const ApiInfo& api : api_list()) {
    if (api.path != path) continue;
    if (!fits("POST")) throw wrong_method();
    return {.endpoint = Endpoint::kApi, .api = api.api, .name = api.path, .argument = {}};
  }
  for (const GetRow& row : kGets) {
    if (row.path != path) continue;
    if (!fits("GET")) throw wrong_method();
    return {.endpoint = row.endpoint, .name = row.path, .argument = {}};
  }
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) {
    if (!fits("GET")) throw wrong_method();
    return {
        .endpoint = Endpoint::kModel, .name = kModelPath, .argument = std::string(path.substr(kModelPrefix.size()))};
  }
  throw ApiError(404, fmt::format("there is nothing at {}", describe(Json(path))), "invalid_request_error", {},
                 "unknown_url");
}

ApiLimits Service::limits() const {
  const ModelInfo& info = completer_.info();
  return {.models = options_.model_names, .vocab_size = info.vocab_size, .max_model_len = info.max_model_len,
          .sampling = info.sampling_defaults};
}

Json Service::model_json(const std::string& name) const {
  return {{"id", name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "quire"},
          {"max_model_len", completer_.info().max_model_len}};
}

Reply Service::reply(const Route& route, bool stopping) const {
  switch (route.endpoint) {
    case Endpoint::kHealth:
      return stopping ? Reply{.status = 503, .body = R"({"status":"stopping"})"} : Reply{.body = R"({"status":"ok"})"};
    case Endpoint::kReady:
      return stopping ? Reply{.status = 503, .body = R"({"status":"stopping"})"}
                      : Reply{.body = R"({"status":"ready"})"};
    case Endpoint::kVersion:
      return {.body = dump({{"version", options_.version}})};
    case Endpoint::kOpenApi:
      return {.body = openapi_document(limits(), options_.version, options_.needs_key)};
    case Endpoint::kTokenizerInfo:
      return {.body = completer_.tokenizer_info().dump(-1, ' ', false, Json::error_handler_t::replace)};
    case Endpoint::kMetrics:
      return {.body = metrics_->scrape(completer_.stats()), .content_type = "text/plain; version=0.0.4; charset=utf-8"};
    case Endpoint::kModels: {
      Json data = Json::array();
      for (const std::string& name : options_.model_names) data.push_back(model_json(name));
      return {.body = dump({{"object", "list"}, {"data", std::move(data)}})};
    }
    case Endpoint::kModel:
      for (const std::string& name : options_.model_names) {
        if (name == route.argument) return {.body = dump(model_json(name))};
      }
      throw ApiError(404, fmt::format("the model {} is not served here", describe(Json(route.argument))),
                     "invalid_request_error", "model", "model_not_found");
    case Endpoint::kApi:
      break;  // prepare's
  }
  throw ApiError(500, "the server failed to answer this request", "server_error");
}

void Service::log_once(const std::vector<std::string>& names) {
  const std::lock_guard lock(mutex_);
  for (const std::string& name : names) {
    if (logged_.size() >= kMaxLoggedFields) return;
    if (name.size() > 64 || !logged_.insert(name).second) continue;
    spdlog::info("the field {} of requests has no effect here", describe(Json(name)));
  }
}

}  // namespace quire
