// `quire plan --check`: predictions compared with what the model really takes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench/limits.h"
#include "cli/bench/model.h"
#include "cli/terminal/progress.h"
#include "quire/engine.h"

namespace quire {

// Seconds of a decode step, or of the whole prefill. Other work on the machine raises the mean of the steps, but hardly the
// sum of the operations' medians.
struct PlanCheckRow {
  BenchTest test;
  Samples predicted;
  Samples measured;  // the sum of the medians of operations
  Samples mean;      // as `quire bench` counts
  Samples ratio;     // measured / predicted, pair by pair
};

struct PlanCheck {
  std::string model;
  int threads = 0;
  std::vector<PlanCheckRow> rows;
  double predicted_bytes = 0, measured_bytes = 0;  // weights, cache and activations; what the process grew by
};

struct PlanCheckOptions {
  std::vector<int> prompts = {512}, depths = {0, 4096}, batches = {1, 8, 32};
  int decoded = 32;     // tokens
  int repetitions = 3;  // of pairs: a probe before and after each round of measurements
  int probe_runs = 5;
};

// Loads the model; the probe computes with random weights of its shape. Throws Error as loading does.
PlanCheck check_plan(EngineOptions engine, const PlanCheckOptions& options, Progress& progress);

void print_check(const PlanCheck& check);
nlohmann::ordered_json check_json(const PlanCheck& check);

}  // namespace quire
