#include "cli/flags/process_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/cpu.h"
#include "cli/flags/engine_options.h"
#include "engine/ranks/open_processes.h"

namespace quire {

void add_process_options(CLI::App& app, ProcessFlags& flags, EngineOptions& options) {
  app.add_option(
         "--ranks", flags.ranks,
         "what ranks are: threads of this process, or processes that MPI has started, one a rank (docs/scale.md); "
         "auto: mpi under mpirun")
      ->check(CLI::IsMember({"auto", "threads", "mpi"}))
      ->group("Computation")
      ->capture_default_str();
  app.add_option("--rank-timeout", options.rank_timeout,
                 "with --ranks mpi: seconds that ranks wait for one that does not answer; 0: 2, or 30 with stages")
      ->check(between(0.0, 3600.0))
      ->group("Computation")
      ->capture_default_str();
}

bool connect_processes(const ProcessFlags& flags, EngineOptions& options) {
  if (flags.ranks == "threads" || (flags.ranks == "auto" && !is_one_of_several())) return false;
  options.processes = open_processes();
  const ProcessGroup& group = *options.processes;
  const bool stages = options.pipeline_parallel_size != 1;
  int& size = stages ? options.pipeline_parallel_size : options.tensor_parallel_size;
  if (size != 1 && size != group.ranks())
    throw CLI::ValidationError(
        stages ? "--pipeline-parallel-size" : "--tensor-parallel-size",
        fmt::format("is {}, but there are {} processes; {}, or use --ranks threads", size, group.ranks(),
                    stages ? fmt::format("give {}", group.ranks()) : "leave it out"));
  size = group.ranks();
  if (options.threads == 0) options.threads = std::max(1, usable_cores() / group.places().on_cores);
  if (group.rank() == 0) return false;
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  return true;
}

}  // namespace quire
