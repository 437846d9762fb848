// What tests of a CPU and an emulated GPU that share a model have in common.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/files/mapped_file.h"
#include "unit/engine/several_ranks.h"

namespace quire::testing {

// small_options() with the emulated GPU.
inline EngineOptions shared_options(std::string model, int gpu_layers, int cpu_moe_layers = 0) {
  EngineOptions o = small_options(std::move(model));
  o.device = "emulated";
  o.gpu_layers = gpu_layers;
  o.cpu_moe_layers = cpu_moe_layers;
  return o;
}

// What the golden tests allow between the logits of Quire and transformers. folder: of a golden model.
inline double golden_tolerance(const std::string& folder) {
  return nlohmann::json::parse(read_text_file(folder + "/expected.json")).at("suggested_tolerance_max_abs_fp32");
}

// Infinite if numbers are not.
inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    largest = std::isfinite(difference) ? std::max(largest, difference) : std::numeric_limits<double>::infinity();
  }
  return largest;
}

}  // namespace quire::testing
