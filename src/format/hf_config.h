// The JSON files of a Hugging Face model directory. src/model interprets their keys.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "json/field.h"
#include "quire/types.h"

namespace quire {

// A step after the model itself, as sentence-transformers lists them in modules.json.
struct SentenceModule {
  std::string kind;                 // the class without its packages: Transformer, Pooling, Dense, Normalize
  std::string folder;               // in the model's directory; empty: the directory itself
  std::optional<JsonField> config;  // config.json of the folder
};

struct HfConfig {
  JsonField config;                     // config.json
  std::optional<JsonField> generation;  // generation_config.json
  std::optional<JsonField> tokenizer;   // tokenizer_config.json
  std::optional<JsonField> quantizer;   // hf_quant_config.json, which NVIDIA's ModelOpt writes
  std::vector<SentenceModule> modules;  // in their order; empty without modules.json

  // Throws Error if config.json is missing; the others are optional.
  static HfConfig open(const std::filesystem::path& directory);
  // config.json alone, under any name and wherever it is.
  static HfConfig of_file(const std::filesystem::path& config);
};

struct EndTokens {
  TokenId bos = kNoToken;
  TokenIds eos;  // every token that ends an answer; no duplicates
};

// From generation_config.json; keys it lacks come from config.json or its text_config.
EndTokens end_tokens(const HfConfig& config);

}  // namespace quire
