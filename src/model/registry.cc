#include "model/registry.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"
#include "model/models_json.h"  // generated from models.json

namespace quire {
namespace {

// The keys are those of generation_config.json.
SamplingDefaults read_sampling(const nlohmann::json& entry) {
  SamplingDefaults sampling;
  const auto sampling_json = entry.value("sampling", nlohmann::json::object());
  const auto read = [&](const char* key, auto& field) {
    if (sampling_json.contains(key)) field = sampling_json.at(key).get<std::remove_reference_t<decltype(*field)>>();
  };
  read("temperature", sampling.temperature);
  read("top_p", sampling.top_p);
  read("top_k", sampling.top_k);
  read("min_p", sampling.min_p);
  read("repetition_penalty", sampling.repetition_penalty);
  return sampling;
}

}  // namespace

const std::vector<RegisteredModel>& registered_models() {
  static const std::vector<RegisteredModel> models = [] {
    std::vector<RegisteredModel> list;
    for (const auto& entry : nlohmann::json::parse(kModelsJson)) {
      list.push_back({entry.at("name"), entry.at("title"), entry.at("file"), entry.at("sha256"), entry.at("licence"),
                      entry.value("default", false), read_sampling(entry)});
    }
    return list;
  }();
  return models;
}

std::filesystem::path model_folder() {
  if (const char* folder = std::getenv("QUIRE_MODELS"); folder && *folder) return folder;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home && *home ? home : ".") / ".cache/quire/models";
}

std::filesystem::path resolve_model(const std::string& model) {
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored)) return model;
  std::string names;
  for (const RegisteredModel& known : registered_models()) {
    names += (names.empty() ? "" : ", ") + known.name;
    if (known.name != model) continue;
    const auto path = model_folder() / known.file;
    if (std::filesystem::exists(path, ignored)) return path;
    throw not_found(
        "model {} ({}) is not in {} yet: run './dev fetch {}' where there is a network, or give a file with -m", model,
        known.title, model_folder().string(), model);
  }
  throw not_found("model '{}' is neither a file, nor a directory, nor a known name ({})", model, names);
}

}  // namespace quire
