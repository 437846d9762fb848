// Registered model names: models.json, compiled into the binary.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "quire/sampling_params.h"

namespace quire {

struct RegisteredModel {
  std::string name, title, file, sha256, licence;
  bool is_default = false;
  bool is_base = false;  // trained on texts alone: it continues a text, and does not answer
  SamplingDefaults sampling = {};
};
const std::vector<RegisteredModel>& registered_models();

// The entry of this name, or whose file has this path's name; null: none.
const RegisteredModel* find_registered(const std::string& model);

// $QUIRE_MODELS, else ~/.cache/quire/models; empty without a home folder.
std::filesystem::path model_folder();

// Resolves the argument of `-m`: an existing path, or a registered name whose file is in the model folder. Throws Error
// (kNotFound) that says what to do.
std::filesystem::path resolve_model(const std::string& model);

}  // namespace quire
