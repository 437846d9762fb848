// The subcommands of `quire bench`: one per file, each adding itself like those of commands.h.
#pragma once

#include <CLI/CLI.hpp>

namespace quire {

void add_bench_kernels_command(CLI::App& bench);
void add_bench_serve_command(CLI::App& bench);
void add_bench_speculative_command(CLI::App& bench);
void add_bench_tune_command(CLI::App& bench);

inline constexpr void (*kBenchCommands[])(CLI::App& bench) = {add_bench_kernels_command, add_bench_serve_command,
                                                              add_bench_speculative_command, add_bench_tune_command};

}  // namespace quire
