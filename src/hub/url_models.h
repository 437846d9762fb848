// GGUF files of any server, in ~/.cache/quire/downloads: a folder for each URL, with the file under its own name and
// source.json, which says where it came from.
#pragma once

#include <optional>
#include <vector>

#include "hub/download_model.h"

namespace quire {

std::optional<StoredModel> find_url_model(const UrlReference& model);
StoredModel download_url_model(const UrlReference& model, const DownloadOptions& options);
std::vector<StoredModel> stored_url_models();
uint64_t remove_url_model(const UrlReference& model);

}  // namespace quire
