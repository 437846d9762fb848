// quire quantize --target-bpw and --plan: types for each group of matrices, by what they cost in the model's output.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "cli/calibration/calibration.h"
#include "cli/terminal/progress.h"
#include "quantize/allocation/allocation.h"
#include "quantize/quantize.h"

namespace quire {

struct AllocateFlags {
  std::optional<double> target;  // bits a weight, of all tensors
  std::string plan, plan_out;    // files; empty: none
  int chunks = 4, context = 256;

  bool given() const { return target || !plan.empty(); }
  CLI::Option *target_option = nullptr, *plan_option = nullptr;
};

// Adds --target-bpw, --plan, --plan-out and the flags of measuring. flags: must outlive the command.
void add_allocate_flags(CLI::App& command, AllocateFlags& flags);

struct AllocateJob {
  const Checkpoint& checkpoint;
  std::string input, output;       // as on the command line; output may be empty
  CalibrationFlags calibration;    // its file is the text to measure on; empty: the model writes one
  const QuantizeOptions& options;  // how matrices are encoded
  int threads = 0;
  Progress& progress;
  const std::function<void()>& check;  // may throw to stop
};
// Reads the plan, or measures and chooses. Throws Error, as the parts do.
Allocation allocation_for(const AllocateFlags& flags, const AllocateJob& job);

// The plan as a table, on standard output, and where it comes from.
void print_allocation(const Allocation& allocation);

}  // namespace quire
