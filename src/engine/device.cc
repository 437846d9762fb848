#include "engine/device.h"

namespace quire {

std::unique_ptr<Backend> open_device(CpuBackend&) { return nullptr; }

}  // namespace quire
