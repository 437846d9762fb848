// base/memory.h for kernel tests: every LargeBuffer ends (rounded to a cache line) at an inaccessible page, so that
// reading or writing past its end fails the test. The real one has up to 2 MiB of zeros there, and no sanitizer checks
// assembly and vector code.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/memory.h"

namespace quire {
namespace {

constexpr size_t kPage = 4096, kLine = 64;

size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

LargeBuffer::LargeBuffer(size_t bytes) {
  if (bytes == 0) return;
  size_ = (bytes + kLine - 1) / kLine * kLine;
  void* begin = ::mmap(nullptr, pages(size_) + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED || ::mprotect(begin, pages(size_), PROT_READ | PROT_WRITE) != 0)
    throw no_resource("cannot reserve {} MiB of memory", size_ >> 20);
  data_ = static_cast<std::byte*>(begin) + pages(size_) - size_;
}

LargeBuffer::~LargeBuffer() {
  if (data_ != nullptr) ::munmap(data_ + size_ - pages(size_), pages(size_) + kPage);
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
  buffer.size_ = (bytes + kLine - 1) / kLine * kLine;
  return buffer;
}

TEST(FencedMemory, EndsAtItsLastCacheLine) {
  const LargeBuffer memory(100);
  volatile std::byte* bytes = memory.data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kLine, 0u);
  EXPECT_TRUE(bytes[127] == std::byte{0});
  EXPECT_DEATH(bytes[127] = bytes[128], "");
}

}  // namespace quire
