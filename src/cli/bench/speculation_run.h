// Runs prompts with and without speculation, side by side.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/bench/prompts.h"
#include "cli/bench/speculation_estimate.h"
#include "cli/terminal/progress.h"

namespace quire {

struct SpeculationOptions {
  EngineOptions engine;  // speculative: any; set for each drafter
  int tokens = 128;      // most tokens of an answer
  int parallel = 1;      // prompts that run together
  float temperature = 0;
};

// Prompts that ran together, once without speculation and once with it.
struct SpeculationSample {
  std::string prompt;  // the first one's name
  uint64_t tokens = 0;
  double off_seconds = 0, on_seconds = 0;
};

struct DrafterResult {
  std::string drafter;
  ModelInfo model;
  DecodeCounts off, on;
  std::vector<RowCost> costs;  // measured after all prompts
  SpeculationEstimate expected;
  std::vector<SpeculationSample> samples;
};

// Loads the model and runs the prompts. Each prompt is run off and on, one right after the other, so that a machine
// whose speed changes slows both alike; which comes first alternates. Throws Error if an answer differs.
DrafterResult measure_drafter(Speculation drafter, const SpeculationOptions& options,
                              std::span<const BenchPrompt> prompts, Progress& progress);

}  // namespace quire
