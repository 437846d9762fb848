// Models of Ollama registries, in Ollama's own store: $OLLAMA_MODELS or ~/.ollama/models.
#pragma once

#include <optional>
#include <vector>

#include "hub/download_model.h"

namespace quire {

std::optional<StoredModel> find_ollama_model(const OllamaReference& model);
StoredModel download_ollama_model(const OllamaReference& model, const DownloadOptions& options);
std::vector<StoredModel> stored_ollama_models();
uint64_t remove_ollama_model(const OllamaReference& model);

}  // namespace quire
