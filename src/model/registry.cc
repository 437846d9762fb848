#include "model/registry.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"
#include "base/files/home_folder.h"
#include "base/text/nearest.h"
#include "model/models_json.h"  // generated from models.json

namespace quire {
namespace {

constexpr size_t kLongestShown = 1024;  // bytes of a name in a message

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
                      entry.value("default", false), entry.value("base", false), read_sampling(entry)});
    }
    return list;
  }();
  return models;
}

std::filesystem::path model_folder() {
  if (const char* folder = std::getenv("QUIRE_MODELS"); folder && *folder) return folder;
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "models";
}

const RegisteredModel* find_registered(const std::string& model) {
  const std::filesystem::path file = std::filesystem::path(model).filename();
  const auto& models = registered_models();
  const auto found =
      std::ranges::find_if(models, [&](const RegisteredModel& m) { return m.name == model || m.file == file; });
  return found == models.end() ? nullptr : &*found;
}

std::filesystem::path resolve_model(const std::string& model) {
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored)) return model;
  std::vector<std::string> names;
  for (const RegisteredModel& known : registered_models()) {
    names.push_back(known.name);
    if (known.name != model) continue;
    const auto folder = model_folder();
    if (folder.empty()) {
      throw not_found(
          "model {} ({}): there is no folder of models, because HOME is unset and this user has no home folder; set "
          "QUIRE_MODELS to a folder, or pass a file with -m",
          model, known.title);
    }
    const auto path = folder / known.file;
    if (std::filesystem::exists(path, ignored)) return path;
    throw not_found("model {} ({}) is not in {} yet; download it with './dev fetch {}', or pass a file with -m", model,
                    known.title, folder.string(), model);
  }
  if (model.starts_with("hf:") || model.starts_with("ollama:")) {
    throw not_found("model '{}' is the name of a download, which only commands resolve; `quire pull` prints its path",
                    model.substr(0, kLongestShown));
  }
  if (model.size() > kLongestShown) throw not_found("model not found: no file has this path of {} bytes", model.size());
  const std::string hint = did_you_mean(model, names);
  throw not_found("model '{}' not found: no file, directory or known model of this name.{}", model,
                  hint.empty() ? " `quire list` shows the known models" : hint);
}

}  // namespace quire
