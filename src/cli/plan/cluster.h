// quire plan --cluster: simulates clusters of replicas under a load.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/plan/report.h"
#include "load/workload.h"

namespace quire {

struct ClusterOptions {
  std::string file;  // cluster/cluster_file.h; empty: no clusters
  WorkloadOptions workload;
  std::string slo;

  std::string svg;  // also draw it; empty: no
  bool force = false, json = false;
};

void add_cluster_options(CLI::App& command, ClusterOptions& options);
// What flags must say together. Throws CLI::Error.
void check_cluster_options(const ClusterOptions& options);

// plan: of one machine, with its model and its steps. Throws Error: the file or the trace is wrong, or does not fit.
void run_cluster(const ClusterOptions& options, const PlanReport& plan, const PlannedMachine& machine);

}  // namespace quire
