#include "server/api/service.h"

#include <fmt/chrono.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <random>

#include "server/api/field_readers.h"
#include "server/api/home_page.h"
#include "server/api/openapi.h"

namespace quire {
namespace {

constexpr size_t kMaxLoggedFields = 256;  // and notes

// "/models/SmolLM2.Q4_1.gguf" is served as "SmolLM2.Q4_1" and under its full path.
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

Reply error_reply(const ApiError& error, ErrorShape shape) {
  Reply reply{.status = error.status, .body = error_body(error, shape)};
  if (error.retry_after > 0) reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  return reply;
}

Service::Service(Completer& completer, ServiceOptions options)
    : completer_(completer),
      options_(std::move(options)),
      started_(unix_seconds()),
      format_(completer, options_.tool_call_parser, options_.reasoning_parser) {
  const ModelInfo& info = completer_.info();
  if (const AnswerFormat& format = format_.format(); !completer.chat_template_source().empty()) {
    spdlog::info("answers: tool calls are read as {}, reasoning as {}", format.tools ? format.tools->name : "none",
                 format.reasoning ? format.reasoning->name : "none");
  }
  std::erase_if(options_.model_names, [&](const std::string& name) {
    const bool pattern = name.ends_with('*');
    if (pattern) model_prefixes_.push_back(name.substr(0, name.size() - 1));
    return pattern;
  });
  if (options_.model_names.empty()) options_.model_names = default_names(info.name);
  metrics_ = std::make_shared<Metrics>(options_.model_names.front(), info, options_.metrics_prefix,
                                       completer_.read_bandwidth());
  admission_ = std::make_shared<Admission>(options_.max_running + options_.max_queue, options_.several_tenants);
}

ApiLimits Service::limits() const {
  const ModelInfo& info = completer_.info();
  return {.models = options_.model_names,
          .model_prefixes = model_prefixes_,
          .vocab_size = info.vocab_size,
          .max_model_len = info.max_model_len,
          .embedding_size = info.embedding_size,
          .pooling = info.pooling,
          .sampling = info.sampling_defaults};
}

OllamaModel Service::ollama_model() const {
  return {.info = completer_.info(),
          .names = options_.model_names,
          .loaded = started_,
          .chat_template = completer_.chat_template_source(),
          .thinks = format_.format().reasoning != nullptr,
          .infills = completer_.can_infill()};
}

LlamaServer Service::llama_server() const {
  const EngineStats stats = completer_.stats();
  const Json tokens = completer_.tokenizer_info();
  LlamaServer server{.info = completer_.info(),
                     .name = options_.model_names.front(),
                     .version = options_.version,
                     .slots = options_.max_running,
                     .busy = stats.running,
                     .speculates = !stats.drafters.empty(),
                     .chat_template = completer_.chat_template_source(),
                     .bos_token = tokens.value("bos_token", Json()),
                     .eos_token = tokens.value("eos_token", Json()),
                     .sampling = {}};
  apply_defaults(server.sampling, server.info.sampling_defaults);
  return server;
}

Json Service::model_json(const std::string& name) const {
  return {{"id", name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "quire"},
          {"max_model_len", completer_.info().max_model_len},
          {"type", "model"},  // this and the next two: Anthropic's
          {"display_name", name},
          {"created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(started_)))}};
}

// As Codex CLI reads it. Its own instructions stay: releases that want "base_instructions" here refuse the list, and
// describe the model by themselves.
Json Service::codex_model_json(const std::string& name) const {
  const int context = completer_.info().max_model_len;
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
Json Service::models_json() const {
  Json data = Json::array(), models = Json::array();
  for (const std::string& name : options_.model_names) {
    data.push_back(model_json(name));
    models.push_back(codex_model_json(name));
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"has_more", false},
          {"first_id", options_.model_names.front()},
          {"last_id", options_.model_names.back()},
          {"models", std::move(models)}};
}

Reply Service::reply(const Route& route, bool stopping) const {
  switch (route.endpoint) {
    case Endpoint::kHome:
      if (route.plain) return {.body = "Ollama is running", .content_type = "text/plain; charset=utf-8"};
      return home_page({.url = route.argument,
                        .version = options_.needs_key ? "" : options_.version,
                        .model = options_.needs_key ? "" : options_.model_names.front()});
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
    case Endpoint::kModels:
      return {.body = dump(models_json())};
    case Endpoint::kModel:
      for (const std::string& name : options_.model_names) {
        if (name == route.argument || name + '/' == route.argument) return {.body = dump(model_json(name))};
      }
      if (is_served(limits(), route.argument)) return {.body = dump(model_json(route.argument))};
      throw ApiError(404,
                     fmt::format("the model {} is not served here; GET /v1/models lists the served models",
                                 describe(Json(route.argument))),
                     "invalid_request_error", "model", "model_not_found");
    case Endpoint::kOllamaTags:
      return {.body = dump(ollama_tags_json(ollama_model()))};
    case Endpoint::kOllamaPs:
      return {.body = dump(ollama_ps_json(ollama_model()))};
    case Endpoint::kOllamaVersion:
      return {.body = dump({{"version", kOllamaVersion}})};
    case Endpoint::kLlamaProps:
      return {.body = dump(llama_props_json(llama_server()))};
    case Endpoint::kLlamaSlots:
      return {.body = dump(llama_slots_json(llama_server()))};
    case Endpoint::kApi:
      break;  // prepare() answers it
  }
  throw ApiError(500, "the server failed to answer this request", "server_error");
}

void Service::log_once(const std::vector<std::string>& names) {
  const std::lock_guard lock(mutex_);
  for (const std::string& name : names) {
    if (logged_.size() >= kMaxLoggedFields) return;
    if (name.size() > 64 || !logged_.insert(name).second) continue;
    spdlog::info("a request has the field {}, which has no effect here", describe(Json(name)));
  }
}

void Service::log_smaller_context(int asked) {
  std::call_once(context_said_, [&] {
    spdlog::info(
        "a request asks for a context of {} tokens (options.num_ctx); it has this server's, {} (--max-model-len)",
        asked, completer_.info().max_model_len);
  });
}

void Service::log_notes(const std::vector<std::string>& notes) {
  const std::lock_guard lock(mutex_);
  for (const std::string& note : notes) {
    if (logged_.size() >= kMaxLoggedFields) return;
    if (logged_.insert(note).second) spdlog::info("{}", note);
  }
}

void Service::log_described_tools() {
  std::call_once(described_, [] {
    spdlog::info(
        "the model's chat template knows no tools: they are described in a message, and calls are read as JSON "
        "(docs/tools.md)");
  });
}

}  // namespace quire
