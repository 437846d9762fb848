// With QUIRE_FENCED_BACKEND=N in the environment, the engines of a test program compute on a FencedBackend that closes after
// every N operations. The program is linked with --wrap for open_device().
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "engine/device.h"
#include "fenced/fenced_backend.h"

namespace quire::testing {

std::unique_ptr<Backend> open_fenced(CpuBackend& cpu) asm("__wrap__ZN5quire11open_deviceERNS_10CpuBackendE");
std::unique_ptr<Backend> open_fenced(CpuBackend& cpu) {
  const char* const close_after = std::getenv("QUIRE_FENCED_BACKEND");
  if (close_after == nullptr) return nullptr;
  return std::make_unique<FencedBackend>(cpu, static_cast<unsigned>(std::max(1, std::atoi(close_after))));
}

}  // namespace quire::testing
