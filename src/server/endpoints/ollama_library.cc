// Ollama's API for the models of a machine: pull, delete, copy.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "server/api/models.h"
#include "server/api/request/field_readers.h"
#include "server/endpoints/ollama.h"

namespace quire {
namespace {

constexpr size_t kLongestName = 512;

// A model that need not be served.
void read_any_model(ApiDraft& draft, const JsonField& field) {
  draft.model = field.string();
  if (draft.model.empty() || draft.model.size() > kLongestName)
    throw bad_request("model", "must be a name of 1 to {} bytes", kLongestName);
}

void read_destination(ApiDraft& draft, const JsonField& field) {
  constexpr size_t kLongestAlias = 256;  // answers repeat it
  draft.destination = untagged(field.string());
  if (draft.destination.empty() || draft.destination.size() > kLongestAlias)
    throw bad_request("destination", "must be a name of 1 to {} bytes", kLongestAlias);
}

// The model that requests mean by this name, if any.
std::optional<size_t> find_served(const Models& models, const std::string& name) {
  const size_t found = models.find(name);
  const ListedModel model = models.list(found);
  const auto has = [&](std::string_view asked) {
    return model.names.serves(asked) || std::ranges::find(model.aliases, asked) != model.aliases.end() ||
           std::ranges::find(model.adapters, asked) != model.adapters.end();
  };
  return has(name) || has(untagged(name)) ? std::optional(found) : std::nullopt;
}

std::shared_ptr<ModelStore> require_store(const Models& models, const std::string& name) {
  if (auto store = models.options().model_store) return store;
  throw ApiError(404, fmt::format("model {} is not served here, and this server keeps no others", describe(Json(name))),
                 "invalid_request_error", "model", "model_not_found");
}

Json progress_json(const PullProgress& progress) {
  Json line = {{"status", progress.status}};
  if (!progress.digest.empty()) line["digest"] = progress.digest;
  if (progress.total > 0) {
    line["total"] = progress.total;
    line["completed"] = progress.completed;
  }
  return line;
}

std::string status_line(const std::string& status) { return dump({{"status", status}}); }

// Its programs pull a model before they use it. What is served is there.
Task pull(const Models& models, const ApiRequest& request) {
  if (find_served(models, request.model)) return nullptr;
  return [&models, store = require_store(models, request.model), name = request.model](TaskRun& run) {
    const std::string stored = store->pull(
        name, [&](const PullProgress& progress) { run.tell(progress.status, dump(progress_json(progress))); },
        [&] { run.check(); });
    spdlog::info("downloaded {} for a client", describe(Json(stored)));
    if (models.serves_downloads()) {
      models.add_downloaded(name, stored);
    } else {
      run.tell("", status_line(fmt::format("this server serves only the model that it was started with: use -m {}, or "
                                           "--keep-alive to serve several",
                                           stored)));
    }
    return status_line("success");
  };
}

std::string say_pulled(const Models&, const ApiRequest&) { return status_line("success"); }

Task remove(const Models& models, const ApiRequest& request) {
  if (models.remove_alias(request.model) || models.remove_alias(untagged(request.model))) return nullptr;
  const std::string shown = describe(Json(request.model));
  const std::optional<size_t> served = find_served(models, request.model);
  if (served && models.stored_as(*served).empty())
    throw bad_request("model", "{} was given to this server at its start, so its files stay", shown);
  return [&models, store = require_store(models, request.model), name = request.model, shown, served](TaskRun& run) {
    if (served) models.withdraw(*served, [&] { run.check(); });
    if (!store->remove(served ? models.stored_as(*served) : name))
      throw ApiError(404, fmt::format("model {} not found", shown), "invalid_request_error", "model",
                     "model_not_found");
    spdlog::info("removed {} for a client", shown);
    return std::string();
  };
}

std::string say_nothing(const Models&, const ApiRequest&) { return {}; }

std::string copy(const Models& models, const ApiRequest& request) {
  models.add_alias(models.find(request.model), request.destination);
  return {};
}

}  // namespace

const ApiDefinition& ollama_pull_api() {
  static const ApiDefinition api{
      .path = "/api/pull",
      .summary =
          "Download a model to the server's machine: Ollama's API. Any client may pull a model that is served: it is "
          "already there.",
      .errors = ErrorShape::kOllama,
      .fields = {{"model", read_any_model, schemas::kText,
                  "as Ollama names models, llama3.2:1b and hf.co/ORG/REPO:QUANT, or as -m does"},
                 {"stream", &ApiRequest::stream, {}, "true by default: one JSON object on each line"}},
      .required = {"model"},
      .begin = [](ApiDraft& draft) { draft.stream = true; },
      .manage = say_pulled,
      .task = pull,
      .answer_schema = "OllamaStatus",
      .stream_type = "application/x-ndjson",
      .schemas =
          R"({"OllamaStatus": {"type": "object", "required": ["status"], "properties": {"status": {"const": "success"}}}})"};
  return api;
}

const ApiDefinition& ollama_delete_api() {
  static const ApiDefinition api{
      .path = "/api/delete",
      .summary =
          "Delete an alias, or a model on the server's machine that the server was not started with: Ollama's API.",
      .method = "DELETE",
      .errors = ErrorShape::kOllama,
      .for_operators = true,
      .fields = {{"model", read_any_model, schemas::kText, "an alias, or a name as /api/pull takes it"}},
      .required = {"model"},
      .manage = say_nothing,
      .task = remove};
  return api;
}

const ApiDefinition& ollama_copy_api() {
  static const ApiDefinition api{
      .path = "/api/copy",
      .summary = "Give a served model one more name, until the server ends: Ollama's API.",
      .errors = ErrorShape::kOllama,
      .for_operators = true,
      .fields = {{"source", read_ollama_model, R"({"$ref": "#/components/schemas/OllamaModelName"})"},
                 {"destination", read_destination, schemas::kText, "the new name"}},
      .required = {"source", "destination"},
      .manage = copy};
  return api;
}

}  // namespace quire
