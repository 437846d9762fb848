// What the program finds in a library of this backend (engine/device.h).
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cuda/cuda_backend.h"
#include "ops/backend_version.h"

extern "C" __attribute__((visibility("default"))) quire::Backend* quire_open_backend(int device, const char* version) {
  if (std::strcmp(version, kBackendVersion) != 0) return nullptr;
  // For measuring what graphs gain (docs/cuda.md).
  const char* const graphs = std::getenv("QUIRE_CUDA_GRAPHS");
  return new quire::cuda::CudaBackend(quire::cuda::open(device), !graphs || std::string_view(graphs) != "off");
}
