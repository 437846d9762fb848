#include "server/service.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "server/api_shapes.h"

namespace quire {
namespace {

constexpr size_t kMaxLoggedFields = 256;

struct RouteRow {
  std::string_view method, path;
  Endpoint endpoint;
};
constexpr RouteRow kRoutes[] = {
    {"GET", "/health", Endpoint::kHealth},
    {"GET", "/metrics", Endpoint::kMetrics},
    {"GET", "/v1/models", Endpoint::kModels},
    {"POST", "/v1/chat/completions", Endpoint::kChat},
    {"POST", "/v1/completions", Endpoint::kCompletion},
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

ApiLimits limits_of(const ServiceOptions& options, const ModelInfo& info) {
  return {.models = options.model_names, .vocab_size = info.vocab_size, .max_model_len = info.max_model_len};
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

uint64_t random_u64() {
  thread_local std::random_device device;
  return uint64_t{device()} << 32 | device();
}

Reply error_reply(const ApiError& error) {
  Reply reply{.status = error.status, .body = error_body(error)};
  if (error.retry_after > 0) reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  return reply;
}

Service::Service(Completer& completer, ServiceOptions options)
    : completer_(completer), options_(std::move(options)), started_(unix_seconds()) {
  const ModelInfo& info = completer_.info();
  if (options_.model_names.empty()) options_.model_names = default_names(info.name);
  metrics_ = std::make_shared<Metrics>(options_.model_names.front(), info.max_model_len);
  admission_ = std::make_shared<Admission>(options_.max_running + options_.max_queue);
}

Route Service::route(std::string_view method, std::string_view target, std::string& allow) const {
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  const auto fits = [&](std::string_view allowed) {
    if (allowed == method || (allowed == "GET" && method == "HEAD")) return true;
    allow = allowed == "GET" ? "GET, HEAD" : allowed;
    return false;
  };
  const auto wrong_method = [&] {
    return ApiError(405, fmt::format("{} is not allowed here; allowed: {}", describe(Json(method)), allow),
                    "invalid_request_error", {}, "method_not_allowed");
  };
  for (const RouteRow& row : kRoutes) {
    if (row.path != path) continue;
    if (!fits(row.method)) throw wrong_method();
    return {.endpoint = row.endpoint, .name = row.path, .argument = {}};
  }
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) {
    if (!fits("GET")) throw wrong_method();
    return {.endpoint = Endpoint::kModel,
            .name = kModelPath,
            .argument = percent_decoded(path.substr(kModelPrefix.size()))};
  }
  throw ApiError(404, fmt::format("there is nothing at {}", describe(Json(path))), "invalid_request_error", {},
                 "unknown_url");
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
    default:
      throw ApiError(500, "the server failed to answer this request", "server_error");
  }
}

TokenIds Service::encode(const ApiRequest& request, size_t index, std::vector<std::string>& echo) const {
  if (request.api == Api::kChat) return completer_.encode_chat(request.chat);
  const Prompt& prompt = request.prompts[index];
  if (const auto* ids = std::get_if<TokenIds>(&prompt)) {
    if (request.echo) echo.push_back(completer_.decode(*ids));
    return *ids;
  }
  const auto& text = std::get<std::string>(prompt);
  if (request.echo) echo.push_back(text);
  return completer_.encode(text, request.add_special_tokens);
}

Job Service::prepare(Api api, std::string_view body) {
  const ModelInfo& info = completer_.info();
  ApiRequest request = parse_api_request(api, body, limits_of(options_, info));
  log_once(request.without_effect);
  if (!request.has_seed) request.sampling.seed = random_u64();

  const bool chat = api == Api::kChat;
  const std::string_view field = chat ? "messages" : "prompt";
  const size_t prompts = chat ? 1 : request.prompts.size();
  const int choices = static_cast<int>(prompts) * request.sampling.n;
  // Before the prompt is tokenized: what the queue refuses must cost little.
  if (!admission_->enter(choices)) {
    metrics_->request_rejected();
    ApiError full(429,
                  fmt::format("the queue is full: at most {} answers run and {} wait; try again later",
                              options_.max_running, options_.max_queue),
                  "rate_limit_error", {}, "queue_full");
    full.retry_after = 1;
    throw full;
  }
  try {
    Job job{.head = {.api = api,
                     .id = fmt::format("{}-{:016x}{:016x}", chat ? "chatcmpl" : "cmpl", random_u64(), random_u64()),
                     .model = request.model,
                     .created = unix_seconds(),
                     .choices = choices,
                     .n = request.sampling.n,
                     .prompt_tokens = 0,
                     .echo = {},
                     .logprobs = request.sampling.logprobs.has_value(),
                     .tokens_as_ids = request.return_tokens_as_token_ids,
                     .include_usage = request.include_usage,
                     .continuous_usage_stats = request.continuous_usage_stats},
            .stream = request.stream,
            .requests = {}};
    for (size_t i = 0; i < prompts; ++i) {
      TokenIds ids = encode(request, i, job.head.echo);
      if (request.truncate_prompt_tokens && std::cmp_greater(ids.size(), *request.truncate_prompt_tokens)) {
        ids.erase(ids.begin(), ids.end() - *request.truncate_prompt_tokens);
      }
      if (ids.empty()) throw bad_request(field, "is empty: the model needs at least one token to go on from");
      if (std::cmp_greater_equal(ids.size(), info.max_model_len)) {
        ApiError error = bad_request(field, "has {} tokens; with the answer at most {} are possible here", ids.size(),
                                     info.max_model_len);
        error.code = "context_length_exceeded";
        throw error;
      }
      job.head.prompt_tokens += static_cast<int>(ids.size());
      job.requests.push_back({.prompt = std::move(ids), .sampling = request.sampling});
    }
    return job;
  } catch (...) {
    admission_->leave(choices);
    throw current_api_error();
  }
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
