// A mistake of a kernel, found by the emulated device.
#pragma once

#include <stdexcept>
#include <string>

namespace quire::cuda {

// what() says what is wrong, in which kernel, block and thread, and at which address if there is one.
class DeviceFault : public std::runtime_error {
 public:
  explicit DeviceFault(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace quire::cuda
