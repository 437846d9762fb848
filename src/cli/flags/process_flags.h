// --ranks: whether ranks are teams of threads in this process, or processes that mpirun has started.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "quire/engine.h"

namespace quire {

struct ProcessFlags {
  std::string ranks = "auto";
};

// --ranks and --rank-timeout.
void add_process_options(CLI::App& app, ProcessFlags& flags, EngineOptions& options);

// If ranks are processes, connects this one to the others, and sets EngineOptions::processes and what belongs to it. Returns
// whether this process is to follow rank 0; the end of such a process is rank 0's affair, so it ignores SIGINT and SIGTERM from
// now on. Throws Error, and CLI::ValidationError if -tp or -pp is another number.
bool connect_processes(const ProcessFlags& flags, EngineOptions& options);

}  // namespace quire
