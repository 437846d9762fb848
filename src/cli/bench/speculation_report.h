// The output of `quire bench speculative`.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/bench/speculation_run.h"

namespace quire {

struct SpeculationReport {
  std::string suite;  // copy, misleading, or the file of prompts
  size_t prompts = 0;
  SpeculationOptions options;
  std::vector<DrafterResult> drafters;  // at least one
};

void print_tables(const SpeculationReport& report);  // to stdout
nlohmann::ordered_json to_json(const SpeculationReport& report);

}  // namespace quire
