#include "ops/backend_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/backend.h"

namespace quire {

BackendMemory::BackendMemory(Backend& backend, size_t bytes)
    : backend_(&backend), data_(bytes > 0 ? backend.allocate(bytes) : nullptr), size_(bytes) {}

BackendMemory::~BackendMemory() {
  if (data_) backend_->free(data_, size_);
}

BackendMemory::BackendMemory(BackendMemory&& other) noexcept
    : backend_(other.backend_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

BackendMemory& BackendMemory::operator=(BackendMemory&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Vector::Vector(Backend& backend, std::span<const float> values) : size_(values.size()) {
  if (values.empty()) return;
  auto memory = std::make_shared<BackendMemory>(backend, values.size_bytes());
  backend.write(memory->data(), values.size_bytes(),
                [&](std::span<std::byte> to) { std::memcpy(to.data(), values.data(), to.size()); });
  memory_ = std::move(memory);
}

std::vector<float> Vector::values(Backend& backend) const {
  if (empty()) return {};
  std::vector<std::byte> copy;
  const auto values = view_floats(backend, reinterpret_cast<float*>(memory_->data()), size_, copy);
  return {values.begin(), values.end()};
}

}  // namespace quire
