#include "base/memory.h"

#include <sys/mman.h>

#include <utility>

#include "base/error.h"

namespace quire {
namespace {
size_t whole_pages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }
}  // namespace

LargeBuffer::LargeBuffer(size_t bytes) {
  if (bytes == 0) return;
  size_ = whole_pages(bytes);
  // One huge page more than needed, to keep an aligned part.
  void* raw =
      ::mmap(nullptr, size_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) throw no_resource("cannot reserve {} MiB of memory", size_ >> 20);
  auto* begin = static_cast<std::byte*>(raw);
  const size_t head = (kHugePage - reinterpret_cast<size_t>(begin) % kHugePage) % kHugePage;
  if (head > 0) ::munmap(begin, head);
  if (head < kHugePage) ::munmap(begin + head + size_, kHugePage - head);
  data_ = begin + head;
  ::madvise(data_, size_, MADV_HUGEPAGE);  // may fail: everything works without huge pages, only slower
}

LargeBuffer::~LargeBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

LargeBuffer::LargeBuffer(LargeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

LargeBuffer& LargeBuffer::operator=(LargeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::byte* LargeBuffer::release() {
  size_ = 0;
  return std::exchange(data_, nullptr);
}

LargeBuffer LargeBuffer::adopt(std::byte* released, size_t bytes) {
  LargeBuffer buffer;
  buffer.data_ = released;
  buffer.size_ = whole_pages(bytes);
  return buffer;
}

}  // namespace quire
