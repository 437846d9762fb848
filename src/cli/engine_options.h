// The flags that commands which load a model share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "quire/engine.h"

namespace quire {

// -m, -t, --kernels, --activations, --kv-cache-dtype, --max-model-len, …: what a model by itself obeys. Defaults are
// EngineOptions' own. QUIRE_KERNELS stands in for --kernels.
void add_model_options(CLI::App& app, EngineOptions& options);

// These, and those of the engine: how sequences are scheduled and which pages are kept.
void add_engine_options(CLI::App& app, EngineOptions& options);

// How the memory is divided, a line each: "weights  103 MiB".
std::vector<std::string> memory_table(const ModelInfo& info);

// For seeds and sizes: what is wrong, or nothing. CLI11 alone takes -1 and 10^20 for 2^64 - 1 and 010 for 8.
std::string check_whole_number(const std::string& text);

// --kernels alone, for commands without a model.
void add_kernels_option(CLI::App& app, std::string& kernels);

}  // namespace quire
