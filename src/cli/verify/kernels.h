// Compares the kernel sets of this machine with each other, on one model.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/terminal/progress.h"
#include "cli/verify/logits.h"
#include "quire/engine.h"

namespace quire {

struct KernelSetOptions {
  std::vector<std::string> sets;  // each is compared with the first; empty: all, the reference first
  int prompt_tokens = 16, greedy_tokens = 16;
};

// Some outputs of each matrix of a model, for several row counts, every type of activations and every loop.
struct LinearComparison {
  std::string kernels;
  int64_t matrices = 0;
  int64_t compared = 0, differing = 0;  // outputs, compared bit by bit
};

struct ModelComparison {
  std::string kernels;
  Comparison logits;
  int greedy_steps = 0;

  bool passed() const;  // mean KL at most 1e-4, and equal greedy tokens up to the first small margin
};

struct KernelSetReport {
  std::string model, activations, kv_cache_dtype;
  std::string baseline;  // the kernel set that the others are compared with
  std::vector<LinearComparison> linears;
  std::vector<ModelComparison> models;

  bool passed() const;
};

// Throws Error if there are fewer than two sets.
KernelSetReport compare_kernel_sets(EngineOptions engine, const KernelSetOptions& options, Progress& progress);

void print(const KernelSetReport& report);
nlohmann::ordered_json to_json(const KernelSetReport& report);

}  // namespace quire
