#include "kernels/kv_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

// Each byte of the pool has a value that depends on its page and place.
std::byte value(int page, size_t place) {
  return static_cast<std::byte>((static_cast<size_t>(page) * 31 + place * 7 + place / 256) & 0xff);
}

class KvMemoryPages : public ::testing::TestWithParam<KvType> {
 protected:
  KvMemoryPages() : memory_({GetParam(), 3, 2, 32}, 4), page_bytes_(memory_.shape().page_bytes()) {
    for (int l = 0; l < 3; ++l) {
      const KvLayer layer = memory_.layer(l);
      for (int p = 0; p < 4; ++p)
        for (size_t i = 0; i < layer.page_stride; ++i)
          layer.data[static_cast<size_t>(p) * layer.page_stride + i] =
              value(p, static_cast<size_t>(l) * layer.page_stride + i);
    }
  }
  // The page's parts of all layers, as read_page() returns them.
  std::vector<std::byte> expected(int page) const {
    std::vector<std::byte> bytes(page_bytes_);
    for (size_t i = 0; i < page_bytes_; ++i) bytes[i] = value(page, i);
    return bytes;
  }

  KvMemory memory_;
  size_t page_bytes_;
};

TEST_P(KvMemoryPages, AreReadOverAllLayers) {
  for (int p = 0; p < 4; ++p) {
    std::vector<std::byte> page(page_bytes_);
    memory_.read_page(p, page);
    EXPECT_EQ(page, expected(p));
  }
}

TEST_P(KvMemoryPages, AreWrittenWithoutTouchingOthers) {
  memory_.write_page(2, expected(0));
  for (int p = 0; p < 4; ++p) {
    std::vector<std::byte> page(page_bytes_);
    memory_.read_page(p, page);
    EXPECT_EQ(page, expected(p == 2 ? 0 : p));
  }
}

TEST_P(KvMemoryPages, AreTheCopiesOfEachOther) {
  memory_.copy_page(1, 3);
  std::vector<std::byte> page(page_bytes_);
  memory_.read_page(3, page);
  EXPECT_EQ(page, expected(1));
}

INSTANTIATE_TEST_SUITE_P(Types, KvMemoryPages, ::testing::Values(KvType::kF32, KvType::kBf16));

}  // namespace
}  // namespace quire
