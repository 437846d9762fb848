#include "server/api/service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <utility>

#include "server/api/request/field_readers.h"

namespace quire {
namespace {

constexpr size_t kMaxLoggedFields = 256;  // and notes

}  // namespace

std::vector<std::string> default_names(const std::string& asked) {
  std::filesystem::path path(asked);
  if (path.filename().empty()) path = path.parent_path();  // "folder/"
  std::string name = path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
  if (name.empty() || name == asked) return {asked};
  return {std::move(name), asked};
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint64_t random_u64() {
  thread_local std::random_device device;
  return uint64_t{device()} << 32 | device();
}

Service::Service(Completer& completer, ServedNames names, ServiceOptions options, std::shared_ptr<ModelMetrics> metrics,
                 std::shared_ptr<Admission> admission, ClaimName claim_name)
    : completer_(completer),
      names_(std::move(names)),
      options_(std::move(options)),
      started_(unix_seconds()),
      metrics_(std::move(metrics)),
      admission_(std::move(admission)),
      claim_name_(std::move(claim_name)),
      format_(completer.text(), options_.tool_call_parser, options_.reasoning_parser) {
  if (const AnswerFormat& format = format_.format(); !text().chat_template_source().empty()) {
    spdlog::info("answers: tool calls are read as {}, reasoning as {}", format.tools ? format.tools->name : "none",
                 format.reasoning ? format.reasoning->name : "none");
  }
}

ApiLimits Service::limits() const {
  return {.models = names_.names,
          .model_prefixes = names_.prefixes,
          .vocab_size = model().vocab_size,
          .max_model_len = model().max_model_len,
          .embedding_size = model().embedding_size,
          .pooling = model().pooling,
          .sampling = model().sampling_defaults};
}

std::vector<std::string> Service::adapters() const {
  std::vector<std::string> all;
  for (AdapterInfo& adapter : completer_.adapters()) all.push_back(std::move(adapter.name));
  return all;
}

void Service::require_loading() const {
  if (options_.loads_adapters) return;
  throw bad_request(
      {}, "this server loads no adapters for its clients; start it with --lora-memory or --max-loras to allow it");
}

void Service::add_adapter(const AdapterOption& adapter) {
  require_loading();
  if (names_.has(adapter.name))
    throw bad_request("lora_name", "{} is the model's own name", describe(Json(adapter.name)));
  const std::unique_lock<std::mutex> claimed = claim_name_(adapter.name);
  completer_.add_adapter(adapter);
  spdlog::info("loaded the adapter {} from {}", describe(Json(adapter.name)), describe(Json(adapter.path)));
}

void Service::remove_adapter(const std::string& name) {
  require_loading();
  completer_.remove_adapter(name);
  spdlog::info("unloaded the adapter {}", describe(Json(name)));
}

void Service::prepare_chat(ApiRequest& request) {
  if (!request.tools.is_null() && format_.describes_tools()) log_described_tools();
  format_.prepare(request);
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
        asked, model().max_model_len);
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
