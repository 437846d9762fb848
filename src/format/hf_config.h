// The JSON files of a Hugging Face model directory. What the keys mean for a model is src/model's business.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "json/field.h"
#include "quire/types.h"

namespace quire {

struct HfConfig {
  JsonField config;                     // config.json
  std::optional<JsonField> generation;  // generation_config.json
  std::optional<JsonField> tokenizer;   // tokenizer_config.json

  // A missing config.json is an Error, the others may be missing.
  static HfConfig open(const std::filesystem::path& directory);
};

struct EndTokens {
  TokenId bos = kNoToken;
  TokenIds eos;  // all that end an answer; without duplicates
};

// From generation_config.json, and key by key from config.json (or its text_config) where that is silent.
EndTokens end_tokens(const HfConfig& config);

}  // namespace quire
