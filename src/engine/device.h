// Devices that compute in place of the CPU.
#pragma once

#include <memory>

#include "ops/cpu/cpu_backend.h"

namespace quire {

// The backend of the device that computes; nullptr: the CPU does. This build knows none: its tests link another function,
// which puts a fence around the memory (tests/fenced/).
std::unique_ptr<Backend> open_device(CpuBackend& cpu);

}  // namespace quire
