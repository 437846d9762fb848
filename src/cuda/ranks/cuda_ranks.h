// Devices of one process as ranks.
#pragma once

#include <memory>
#include <span>

#include "cuda/cuda_backend.h"
#include "ops/ranks/device_ranks.h"

namespace quire::cuda {

// backends: by rank, of different devices; they must outlive the result. GPUs exchange by NCCL, emulated devices through memory of
// the host. Throws Error: NCCL cannot be loaded, or cannot connect the GPUs.
std::unique_ptr<DeviceRanks> connect_ranks(std::span<CudaBackend* const> backends);

}  // namespace quire::cuda
