// Large buffers that kernels stream through.
#pragma once

#include <cstddef>
#include <span>

namespace quire {

inline constexpr size_t kHugePage = size_t{2} << 20;

// Owns zeroed, 2 MiB-aligned memory and asks for huge pages: with 4 KiB pages, decoding does not reach the memory's
// bandwidth (docs/performance.md). Pages lie on the node that first touches them. Throws Error (kResource).
class LargeBuffer {
 public:
  LargeBuffer() = default;
  explicit LargeBuffer(size_t bytes);
  ~LargeBuffer();
  LargeBuffer(LargeBuffer&& other) noexcept;
  LargeBuffer& operator=(LargeBuffer&& other) noexcept;
  // Gives the memory to the caller, who must have it adopted again. bytes: as given to the constructor.
  std::byte* release();
  static LargeBuffer adopt(std::byte* released, size_t bytes);

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
