// A mistake of a kernel, found by the emulated device.
#pragma once

#include <stdexcept>
#include <string>

namespace quire::cuda {

// what() names the kernel, block and thread, the address where there is one, and what is wrong.
class DeviceFault : public std::runtime_error {
 public:
  explicit DeviceFault(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace quire::cuda
