#include "ops/backend_memory.h"

#include <algorithm>
#include <cassert>
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

HostCopy::~HostCopy() {
  if (data_) backend_->free_host(data_, size_);
}

HostCopy::HostCopy(HostCopy&& other) noexcept
    : backend_(other.backend_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HostCopy& HostCopy::operator=(HostCopy&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::span<std::byte> HostCopy::room(Backend& backend, size_t bytes) {
  assert(!data_ || backend_ == &backend);
  if (bytes > size_) {
    const size_t size = std::max(bytes, 2 * size_);
    *this = HostCopy();
    backend_ = &backend;
    data_ = backend.allocate_host(size);
    size_ = size;
  }
  return {data_, bytes};
}

std::byte* Backend::allocate_host(size_t bytes) { return new std::byte[bytes]; }
void Backend::free_host(std::byte* memory, size_t) { delete[] memory; }

void Backend::upload(std::span<const std::byte> from, std::byte* to) {
  write(to, from.size(), [&](std::span<std::byte> host) { std::memcpy(host.data(), from.data(), from.size()); });
}

bool Backend::pin(std::span<std::byte>) { return true; }
void Backend::unpin(std::span<std::byte>) {}

PinnedMemory::PinnedMemory(Backend& backend, std::span<std::byte> host)
    : backend_(!host.empty() && backend.pin(host) ? &backend : nullptr), host_(host) {}

PinnedMemory::~PinnedMemory() {
  if (backend_) backend_->unpin(host_);
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : backend_(std::exchange(other.backend_, nullptr)), host_(other.host_) {}

void Backend::read(std::byte* from, std::span<std::byte> to) {
  HostCopy copy;
  std::memcpy(to.data(), view(from, to.size(), copy).data(), to.size());
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
  HostCopy copy;
  const auto values = view_floats(backend, reinterpret_cast<float*>(memory_->data()), size_, copy);
  return {values.begin(), values.end()};
}

}  // namespace quire
