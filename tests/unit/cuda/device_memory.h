// Numbers and caches on a device, for tests of operations.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "cuda/device.h"
#include "ops/backend.h"
#include "ops/rows.h"

namespace quire::cuda {

// A backend that has memory and no operations.
class DeviceMemory final : public Backend {
 public:
  explicit DeviceMemory(Device& device) : device_(device) {}

  std::string_view name() const override { return "memory"; }
  Activations default_activations() const override { return Activations::kF32; }
  std::optional<size_t> own_memory() const override { return device_.free_memory(); }
  int packing_version() const override { return 0; }
  std::unique_ptr<Operations> operations(Activations, const OperationLimits&) override { return nullptr; }
  size_t operations_bytes(const OperationLimits&) const override { return 0; }
  std::byte* allocate(size_t bytes) override { return device_.allocate(bytes); }
  void free(std::byte* memory, size_t) override { device_.free(memory); }
  const std::byte* share(std::span<const std::byte>) override { return nullptr; }
  void write(std::byte* to, size_t bytes, const Fill& fill) override {
    std::vector<std::byte> host(bytes);
    fill(host);
    device_.upload(to, host.data(), bytes);
  }
  std::span<std::byte> view(std::byte* from, size_t bytes, HostCopy& copy) override {
    const std::span<std::byte> to = copy.room(*this, bytes);
    device_.download(to.data(), from, bytes);
    return to;
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { device_.copy(to, from, bytes); }
  void take_rows(const PackedMatrix&, std::span<const int32_t>, std::byte*) override {}

 private:
  Device& device_;
};

// Rows of activations, in the host's memory and in a device's. The device's are written by upload(), read by download().
class TwinRows {
 public:
  TwinRows(Device& device, int rows, int cols, uint32_t seed)
      : device_(device), stride_(row_stride(cols)), cols_(cols), host_(static_cast<size_t>(rows) * stride_) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& x : host_) x = normal(random);
    memory_ = device.allocate(bytes());
    upload();
  }
  ~TwinRows() { device_.free(memory_); }
  TwinRows(const TwinRows&) = delete;
  TwinRows& operator=(const TwinRows&) = delete;

  Rows host() { return {host_.data(), cols_, stride_}; }
  Rows on_device() const { return {reinterpret_cast<float*>(memory_), cols_, stride_}; }
  std::span<float> numbers() { return host_; }
  void upload() { device_.upload(memory_, reinterpret_cast<const std::byte*>(host_.data()), bytes()); }
  std::vector<float> download() const {
    std::vector<float> values(host_.size());
    device_.download(reinterpret_cast<std::byte*>(values.data()), memory_, bytes());
    return values;
  }

 private:
  size_t bytes() const { return host_.size() * sizeof(float); }

  Device& device_;
  size_t stride_;
  int cols_;
  std::vector<float> host_;
  std::byte* memory_;
};

}  // namespace quire::cuda
