// The kernel sets of this machine beside each other, on one model.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/verify/logits.h"
#include "quire/engine.h"

namespace quire {

struct KernelSetOptions {
  std::vector<std::string> sets;  // the others are compared with the first; empty: all, the reference first
  int prompt_tokens = 16, greedy_tokens = 16;
};

// The linears of all of a model's matrices: some outputs of each, for several row counts and every kind of activations.
struct LinearComparison {
  std::string kernels;
  int64_t matrices = 0, compared = 0, differing = 0;  // compared, differing: outputs, bit by bit
};

struct ModelComparison {
  std::string kernels;
  Comparison logits;
  int greedy_steps = 0;

  bool passed() const;  // mean KL at most 1e-4; the same greedy text up to the first small margin
};

struct KernelSetReport {
  std::string model, activations, kv_cache_dtype;
  std::string beside;  // the kernel set that all others are compared with
  std::vector<LinearComparison> linears;
  std::vector<ModelComparison> models;

  bool passed() const;
};

// Throws Error when there are fewer than two sets.
KernelSetReport compare_kernel_sets(EngineOptions engine, const KernelSetOptions& options);

void print(const KernelSetReport& report);
nlohmann::ordered_json to_json(const KernelSetReport& report);

}  // namespace quire
