// What `quire bench` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cli/bench/model.h"
#include "cli/bench/quality.h"

namespace quire {

struct BenchReport {
  std::optional<ModelInfo> model = {};  // unless nothing was timed
  std::vector<BenchResult> results = {};
  std::vector<BenchProfile> profiles = {};
  double empty_loop = 0;  // seconds; with profiles
  std::optional<Quality> quality = {};
};

void print_tables(const BenchReport& report);  // Markdown, to stdout
nlohmann::ordered_json to_json(const BenchReport& report);

// The units that were probed: "int8 1030, bf16 117 GMAC/s".
std::string describe_multiply_rates(const MachineRates& rates);
nlohmann::ordered_json to_json(const MachineRates& rates);

}  // namespace quire
