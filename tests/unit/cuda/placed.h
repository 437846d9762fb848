// Values on a device, and rows of activations, for tests of operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/device.h"
#include "kernels/packed.h"
#include "ops/backend.h"
#include "ops/rows.h"
#include "unit/kernels/random_panels.h"

namespace quire::testing {

// Owns memory of a device with some values.
template <class T>
class Placed {
 public:
  Placed(cuda::Device& device, std::span<const T> values)
      : device_(&device), count_(values.size()), memory_(device.allocate(values.size_bytes())) {
    write(values);
  }
  Placed(cuda::Device& device, size_t count) : Placed(device, std::vector<T>(count)) {}
  Placed(Placed&& other) noexcept
      : device_(other.device_), count_(other.count_), memory_(std::exchange(other.memory_, nullptr)) {}
  ~Placed() {
    if (memory_) device_->free(memory_);
  }

  T* data() const { return reinterpret_cast<T*>(memory_); }
  void write(std::span<const T> values) {
    device_->upload(memory_, reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
  }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    device_->download(reinterpret_cast<std::byte*>(result.data()), memory_, count_ * sizeof(T));
    return result;
  }

 private:
  cuda::Device* device_;
  size_t count_;
  std::byte* memory_;
};

// [rows, cols] with some stride, on a device.
class PlacedRows {
 public:
  PlacedRows(cuda::Device& device, int rows, int cols, size_t stride, std::span<const float> values)
      : rows_(rows), cols_(cols), stride_(stride), memory_(device, spread(values)) {}
  PlacedRows(cuda::Device& device, int rows, int cols, float fill)
      : PlacedRows(device, rows, cols, row_stride(cols),
                   std::vector<float>(static_cast<size_t>(rows) * static_cast<size_t>(cols), fill)) {}
  PlacedRows(cuda::Device& device, int rows, int cols, std::span<const float> values)
      : PlacedRows(device, rows, cols, row_stride(cols), values) {}

  Rows rows() const { return {memory_.data(), cols_, stride_}; }
  std::vector<float> values() const {
    const std::vector<float> all = memory_.values();
    std::vector<float> values;
    for (size_t r = 0; r < static_cast<size_t>(rows_); ++r)
      values.insert(values.end(), all.begin() + static_cast<ptrdiff_t>(r * stride_),
                    all.begin() + static_cast<ptrdiff_t>(r * stride_) + cols_);
    return values;
  }

 private:
  std::vector<float> spread(std::span<const float> values) const {
    std::vector<float> all(static_cast<size_t>(rows_) * stride_);
    for (size_t r = 0; r < static_cast<size_t>(rows_); ++r)
      std::memcpy(&all[r * stride_], &values[r * static_cast<size_t>(cols_)],
                  sizeof(float) * static_cast<size_t>(cols_));
    return all;
  }

  int rows_, cols_;
  size_t stride_;
  Placed<float> memory_;
};

// A matrix on a device.
struct PlacedMatrix {
  Placed<std::byte> memory;
  PackedMatrix matrix;

  PlacedMatrix(cuda::Device& device, const PackedMatrix& host)
      : memory(device, std::span(host.data, host.bytes())), matrix(host) {
    matrix.data = memory.data();
  }
};

// Memory of a device as that of a backend, for Vector. It has no operations.
class MemoryOfDevice final : public Backend {
 public:
  explicit MemoryOfDevice(cuda::Device& device) : device_(device) {}

  std::string_view name() const override { return "memory of a device"; }
  Activations default_activations() const override { return Activations::kBf16; }
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
  std::span<std::byte> view(std::byte* from, size_t bytes, std::vector<std::byte>& copy) override {
    copy.resize(bytes);
    device_.download(copy.data(), from, bytes);
    return copy;
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { device_.copy(to, from, bytes); }
  void take_rows(const PackedMatrix&, std::span<const int32_t>, std::byte*) override {}

 private:
  cuda::Device& device_;
};

inline std::vector<float> random_rows(int rows, int cols, std::mt19937& random) {
  std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(random) * (random() % 50 == 0 ? 20.0f : 1.0f);
  return x;
}

}  // namespace quire::testing
