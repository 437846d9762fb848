// `quire plan --advise`: which optimizations help this model, machine and workload, found by measuring.
#pragma once

#include <string>

#include "quire/engine.h"

namespace quire {

inline constexpr double kLeastAdviceBudget = 5, kMostAdviceBudget = 7200;  // seconds

struct AdviseOptions {
  EngineOptions engine;           // what advice starts from
  std::string workload = "chat";  // for read_advice_workload()
  std::string slo = {};           // for parse_service_level(); empty: none
  double budget = 180;            // seconds
  // Twice what the default activations cost against float32 (0.0006 for SmolLM2, docs/exactness.md), rounded down: answers
  // move no further from the default's than about as far as those are from exact ones.
  double allow_kl = 0.001;
  bool exhaustive = false;  // also compare with all combinations of the main options, whatever the budget
  bool json = false;
};

// Prints the advice. Throws Error.
void run_advise(const AdviseOptions& options);

}  // namespace quire
