// The rates that bound all work on a device, measured.
#pragma once

#include "cuda/device.h"
#include "ops/backend.h"

namespace quire::cuda {

// Takes milliseconds, and half a GiB of the device's memory while it runs. Nothing else may run. Throws Error (kResource).
BackendRates measure_rates(Device& device);

}  // namespace quire::cuda
