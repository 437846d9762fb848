// The models that clients of `quire serve` download and delete: those of the caches (docs/hub.md).
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "server/api/model_store.h"

namespace quire {

// served: files and folders of the models that are served, which are never removed. offline: downloads are errors.
std::shared_ptr<ModelStore> downloaded_models(std::vector<std::filesystem::path> served, bool offline);

}  // namespace quire
