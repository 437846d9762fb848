// Where the engines of a test program compute, by its environment:
//
//   QUIRE_FENCED_BACKEND=N   on a FencedBackend that closes after every N operations
//   QUIRE_TEST_DEVICE=NAME   emulated: on the emulated GPU; otherwise on the device of this name (engine/device.h)
//
// Without these, EngineOptions::device may be "emulated": the emulated GPU with few checks, for whole models, or several of them as ranks. The program is linked
// with --wrap for open_device().
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "cuda/cuda_backend.h"
#include "engine/device.h"
#include "fenced/fenced_backend.h"

namespace quire::testing {

std::unique_ptr<Backend> open_real(std::string_view name, CpuBackend& cpu) asm(
    "__real__ZN5quire11open_deviceESt17basic_string_viewIcSt11char_traitsIcEERNS_10CpuBackendE");
std::unique_ptr<Backend> open_chosen(std::string_view name, CpuBackend& cpu) asm(
    "__wrap__ZN5quire11open_deviceESt17basic_string_viewIcSt11char_traitsIcEERNS_10CpuBackendE");
std::unique_ptr<Backend> open_chosen(std::string_view name, CpuBackend& cpu) {
  if (const char* const device = std::getenv("QUIRE_TEST_DEVICE")) {
    if (std::string_view(device) == "emulated") return std::make_unique<cuda::CudaBackend>(cuda::open(0));
    return open_real(device, cpu);
  }
  const char* const close_after = std::getenv("QUIRE_FENCED_BACKEND");
  if (close_after == nullptr && name.substr(0, name.find(':')) == "emulated")
    return std::make_unique<cuda::CudaBackend>(cuda::open(1));
  if (close_after == nullptr) return open_real(name, cpu);
  return std::make_unique<FencedBackend>(cpu, static_cast<unsigned>(std::max(1, std::atoi(close_after))));
}

}  // namespace quire::testing
