// A model's memory plan for people and programs: what serve, run and inspect print.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/memory_plan.h"

namespace quire {

// {"rows": [{"what", "bytes", "note"}], "bytes", "budget_bytes", "budget_flag", "max_model_len"}, and if there are stages
// "stages": [{"first_layer", "layers", "weight_bytes", "cache_bytes", "sent_bytes_per_token"}]. If the CPU has layers or experts
// next to a device, all before "stages" is the device's, and "host" has what the host keeps:
// {"bytes", "budget_bytes", "weight_bytes", "cache_bytes", "activation_bytes", "other_bytes"}, and with experts "cpu_moe_layers".
// With "devices", which are ranks, all bytes are those of each of so many.
nlohmann::ordered_json memory_json(const MemoryPlan& plan);

// A line for each row of memory_json(), then the total, and a line for each stage or the CPU's experts: "weights  103 MiB  Q4_1".
std::vector<std::string> memory_table(const nlohmann::ordered_json& memory);
inline std::vector<std::string> memory_table(const MemoryPlan& plan) { return memory_table(memory_json(plan)); }

}  // namespace quire
