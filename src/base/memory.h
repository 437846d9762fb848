// Large memory that the kernels stream through.
#pragma once

#include <cstddef>
#include <span>

namespace quire {

// Owns zeroed, 2 MiB-aligned memory that asks for huge pages (a decode step reads it at the memory's rate, which 4 KiB
// pages do not reach: docs/performance.md). Pages are placed where they are first touched. Throws Error (kResource).
class LargeBuffer {
 public:
  LargeBuffer() = default;
  explicit LargeBuffer(size_t bytes);
  ~LargeBuffer();
  LargeBuffer(LargeBuffer&& other) noexcept;
  LargeBuffer& operator=(LargeBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as(size_t offset = 0) const {
    return reinterpret_cast<T*>(data_ + offset);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace quire
