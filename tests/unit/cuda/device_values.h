// Values on a device, and launches of one kernel, for tests.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "cuda/device.h"
#include "cuda/launch.h"

namespace quire::cuda {

// Owns memory of a device with some values.
template <class T>
class OnDevice {
 public:
  OnDevice(Device& device, std::span<const T> values)
      : device_(&device), count_(values.size()), memory_(device.allocate(values.size_bytes())) {
    write(values);
  }
  OnDevice(Device& device, size_t count) : OnDevice(device, std::vector<T>(count)) {}  // zeros
  OnDevice(OnDevice&& other) noexcept
      : device_(other.device_), count_(other.count_), memory_(std::exchange(other.memory_, nullptr)) {}
  ~OnDevice() {
    if (memory_) device_->free(memory_);
  }

  void write(std::span<const T> values) {
    device_->upload(memory_, reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
  }
  T* data() const { return reinterpret_cast<T*>(memory_); }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    device_->download(reinterpret_cast<std::byte*>(result.data()), memory_, count_ * sizeof(T));
    return result;
  }

 private:
  Device* device_;
  size_t count_;
  std::byte* memory_;
};

// Runs it, and waits.
template <class Kernel>
void run_alone(Device& device, const LaunchShape& shape, const Kernel& kernel) {
  const Launch launch = make_launch(shape, kernel);
  device.run({&launch, 1});
  device.finish();
}

}  // namespace quire::cuda
