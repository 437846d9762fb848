// Which models `quire serve` serves, and how each is loaded: from -m and --models-preset.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "engine/runtime.h"
#include "quire/engine.h"
#include "server/api/keep_alive.h"

namespace quire {

struct ModelFlags {
  std::vector<std::string> models;  // MODEL or NAME=MODEL
  std::string preset;               // a file
  std::string keep_alive;           // a duration; empty: as long as there is memory
};

// -m, --models-preset and --keep-alive.
void add_model_flags(CLI::App& command, ModelFlags& flags);

// A model to serve.
struct ModelOrder {
  std::vector<std::string> names;  // empty: those that --served-model-name or the path give
  EngineOptions engine;
  bool at_start = false;  // load it before the server is ready
  bool pinned = false;
  KeepAlive keep_alive = {};
  int max_model_len = 0;  // as planned; 0: not planned yet
};

// Those of the command line, with `common` as their options except that memory_bytes and reserved_bytes are for all
// together, then those of the preset: an INI file with a section for each
// model, whose name is the section's and whose lines are flags without dashes, and besides
//   model = FILE            as -m (required)
//   load-on-startup = true  (the first model of all is loaded at the start in any case)
//   pinned = true           never unload it for another model or because it is idle
//   keep-alive = 10m
// Models that are named by where they can be downloaded are downloaded, unless offline. Throws CLI::ParseError, whose message
// names the file and the section, and Error.
std::vector<ModelOrder> read_model_orders(const ModelFlags& flags, const EngineOptions& common, bool offline);

// A model that a client had downloaded, named as -m would, under the same flags. Nothing is downloaded.
ModelOrder downloaded_order(const std::string& name, const ModelFlags& flags, const EngineOptions& common);

// Whether one model is to be served that stays loaded. Then nothing below counts.
bool is_single(const std::vector<ModelOrder>& orders);

// Plans the memory of each model, from its headers. If all fit together, those without --memory or --kv-cache-size get equal
// parts of what the others leave; otherwise each may take what is free when it is loaded. Sets memory_bytes and
// max_model_len, and returns whether they fit together. Throws Error: a model cannot be loaded, or not even alone.
bool divide_memory(std::vector<ModelOrder>& orders, Runtime& runtime);

}  // namespace quire
