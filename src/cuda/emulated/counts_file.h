// Counters of kernels as a file, which scripts/kernel_resources.py reads.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "cuda/device.h"
#include "cuda/emulated/counters.h"

namespace quire::cuda {

// Appends a line for each kernel, of values between tabs; to a new file first a line with their names. `work` says what the kernels
// did, "all" for whatever a program did. The kernel's name is its type, as c++filt writes it. It is empty for types that the program does
// not export: those of tests. Does nothing if the file cannot be written, because destructors call it.
void append_counts(const std::string& file, std::string_view work, const DeviceFacts& facts,
                   const std::map<const KernelEntry*, KernelCounters>& counters);

}  // namespace quire::cuda
