// Machines by their data sheets: hardware.json, compiled into the binary, or a file of the same form.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/types.h"
#include "plan/work.h"

namespace quire {

struct Hardware {
  std::string name, title;
  double memory = 0;                             // bytes
  MachineRates rates;                            // by the data sheet: no program reaches all of them
  Activations activations = Activations::kBf16;  // what it multiplies in, unless it is told otherwise
  double price_per_hour = 0;                     // in any currency; 0: not known
  std::string source;                            // of the numbers
};

// text: a list of machines, or one. file: names it in messages.
//   {"name", "title", "memory_gb": 80, "bandwidth_gbs": 2039, "tops": {"f32": 19.5, "bf16": 312, "int8": 624, "fp8": 312},
//    "activations": "bf16", "price_per_hour": 2.5 (optional), "source"}
// memory_gb and bandwidth_gbs count 10^9 bytes; tops: 10^12 operations a second, two for a multiply-add, without sparsity.
// Throws Error naming the field.
std::vector<Hardware> parse_hardware(std::string_view text, const std::string& file);

// The machines of hardware.json.
const std::vector<Hardware>& known_hardware();

// One of known_hardware(), or the machine that a JSON file describes. Throws Error that lists the names.
Hardware find_hardware(const std::string& name);

// `devices` of them that share a model: memory, bandwidth and rates add up, as with perfect tensor parallelism, whose
// communication is not counted. devices: at least 1.
Hardware times(Hardware hardware, int devices);

}  // namespace quire
