#include "hub/download_model.h"

#include <utility>

#include "hub/hub_models.h"
#include "hub/ollama_models.h"
#include "hub/url_models.h"

namespace quire {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

std::optional<StoredModel> find_stored(const DownloadSource& source) {
  return std::visit(Overloaded{[](const HubReference& m) { return find_hub_model(m); },
                               [](const OllamaReference& m) { return find_ollama_model(m); },
                               [](const UrlReference& m) { return find_url_model(m); }},
                    source);
}

StoredModel find_or_download(const DownloadSource& source, const DownloadOptions& options) {
  if (!options.update) {
    if (auto found = find_stored(source)) return std::move(*found);
  }
  return std::visit(Overloaded{[&](const HubReference& m) { return download_hub_model(m, options); },
                               [&](const OllamaReference& m) { return download_ollama_model(m, options); },
                               [&](const UrlReference& m) { return download_url_model(m, options); }},
                    source);
}

std::vector<StoredModel> stored_models() {
  std::vector<StoredModel> models = stored_hub_models();
  for (auto& more : {stored_ollama_models(), stored_url_models()})
    models.insert(models.end(), more.begin(), more.end());
  return models;
}

std::optional<StoredModel> removable(const DownloadSource& source) {
  if (const auto* hub = std::get_if<HubReference>(&source)) return removable_hub_model(*hub);
  if (const auto* url = std::get_if<UrlReference>(&source)) return find_url_model({.url = url->url});
  return find_stored(source);
}

uint64_t remove_stored(const DownloadSource& source) {
  return std::visit(Overloaded{[](const HubReference& m) { return remove_hub_model(m); },
                               [](const OllamaReference& m) { return remove_ollama_model(m); },
                               [](const UrlReference& m) { return remove_url_model(m); }},
                    source);
}

}  // namespace quire
