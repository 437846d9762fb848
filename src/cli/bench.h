// What hangs below `quire bench`. A command of its own (`quire bench kernels`) lies in a file of its own,
// bench_NAME.cc, and adds itself like those of commands.h.
#pragma once

#include <CLI/CLI.hpp>
#include <vector>

namespace quire {

inline const std::vector<void (*)(CLI::App& bench)> kBenchCommands = {};

}  // namespace quire
