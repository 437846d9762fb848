// The flags that every command which loads a model shares.
#pragma once

#include <CLI/CLI.hpp>

#include "quire/engine.h"

namespace quire {

// -m, -t, --kernels, --activations, --kv-cache-dtype, --max-model-len, …; defaults are EngineOptions' own.
// QUIRE_KERNELS stands in for --kernels.
void add_engine_options(CLI::App& app, EngineOptions& options);

}  // namespace quire
