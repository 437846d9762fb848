// The flags that every command which loads a model shares.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "quire/engine.h"

namespace quire {

// -m, -t, --kernels, --activations, --kv-cache-dtype, --max-model-len, …; defaults are EngineOptions' own.
// QUIRE_KERNELS stands in for --kernels.
void add_engine_options(CLI::App& app, EngineOptions& options);

// How the memory is divided, a line each: "weights  103 MiB".
std::vector<std::string> memory_table(const ModelInfo& info);

// --kernels alone, for commands without a model.
void add_kernels_option(CLI::App& app, std::string& kernels);

}  // namespace quire
