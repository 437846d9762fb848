// Flags for requests that come as in a trace of production.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "load/workload.h"

namespace quire {

// --trace and what is made of it. trace_help: what the file is for.
void add_trace_flags(CLI::App& command, WorkloadOptions& workload, const std::string& group,
                     const std::string& trace_help);

}  // namespace quire
