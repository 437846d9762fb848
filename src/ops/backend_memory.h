// Memory of a backend, and numbers in it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace quire {

class Backend;

// Owns memory that a backend has allocated: zeroed, its address a multiple of 64. Only the backend and its operations may
// follow the address. The host writes and reads the memory by Backend::write() and Backend::view().
class BackendMemory {
 public:
  BackendMemory() = default;
  // The backend must outlive it. Throws Error (kResource).
  BackendMemory(Backend& backend, size_t bytes);
  ~BackendMemory();
  BackendMemory(BackendMemory&& other) noexcept;
  BackendMemory& operator=(BackendMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Backend* backend_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Memory of the host that Backend::view() may copy to: it grows with the largest copy, and is used again.
class HostCopy {
 public:
  HostCopy() = default;
  ~HostCopy();
  HostCopy(HostCopy&& other) noexcept;
  HostCopy& operator=(HostCopy&& other) noexcept;

  // Room for a copy; earlier contents are lost. Always for the same backend, which must outlive the object.
  std::span<std::byte> room(Backend& backend, size_t bytes);

 private:
  Backend* backend_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Memory of the host that a backend has pinned (Backend::pin()), if it could.
class PinnedMemory {
 public:
  // The backend must outlive it, and so must the memory.
  PinnedMemory(Backend& backend, std::span<std::byte> host);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) = delete;

  bool pinned() const { return backend_ != nullptr; }

 private:
  Backend* backend_;
  std::span<std::byte> host_;
};

// Numbers that all rows share, such as the weights of a norm. Copies share their memory.
class Vector {
 public:
  Vector() = default;
  // The backend must outlive it and its copies. Throws Error (kResource).
  Vector(Backend& backend, std::span<const float> values);

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  std::vector<float> values(Backend& backend) const;
  // In the backend's memory; nullptr if empty.
  const float* data() const { return memory_ ? reinterpret_cast<const float*>(memory_->data()) : nullptr; }

 private:
  std::shared_ptr<const BackendMemory> memory_;  // null: no numbers
  size_t size_ = 0;
};

}  // namespace quire
