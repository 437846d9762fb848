// What a family reads of a config.json, for tests.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "model/families.h"

namespace quire {

inline const Family& family(std::string_view name) {
  return **std::ranges::find(families(), name, [](const Family* f) { return f->name; });
}

// A configuration of 4 layers of 64 channels, with these further settings: `, "key": value`.
inline ModelConfig read_settings(std::string_view name, const std::string& more) {
  const std::string base = R"("num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100,
                              "intermediate_size": 80, "max_position_embeddings": 512)";
  const HfConfig files{JsonField::parse(fmt::format("{{{}{}}}", base, more), "config.json"), {}, {}, {}};
  const HfSettings settings(files);
  const ModelConfig config = family(name).from_hf(settings);
  settings.refuse_unread(name);
  return config;
}

}  // namespace quire
