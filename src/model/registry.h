// Names for models: models.json, built into the binary.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "quire/sampling_params.h"

namespace quire {

struct RegisteredModel {
  std::string name, title, file, sha256, licence;
  bool is_default = false;
  SamplingDefaults sampling = {};
};
const std::vector<RegisteredModel>& registered_models();

// $QUIRE_MODELS, else ~/.cache/quire/models.
std::filesystem::path model_folder();

// What `-m` means: a path that exists, or a registered name whose file is in the model folder. Throws Error (kNotFound)
// that says what to do.
std::filesystem::path resolve_model(const std::string& model);

}  // namespace quire
