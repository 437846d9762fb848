// The output of `quire bench`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cli/bench/model.h"
#include "cli/bench/quality.h"

namespace quire {

struct BenchReport {
  std::optional<ModelInfo> model = {};  // empty: nothing was timed
  std::vector<BenchResult> results = {};
  std::vector<BenchProfile> profiles = {};
  double empty_loop = 0;  // seconds; 0 without profiles
  std::optional<Quality> quality = {};
};

void print_tables(const BenchReport& report);  // to stdout, within 80 columns
nlohmann::ordered_json to_json(const BenchReport& report);

// The measured rates: "61.3 GB/s memory bandwidth, 1030 GMAC/s int8, 117 GMAC/s bf16".
std::string describe(const MachineRates& rates);
nlohmann::ordered_json to_json(const MachineRates& rates);

}  // namespace quire
