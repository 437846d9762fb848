// Packed bytes are kept in files (model/packing), so a change to them needs a new version.

#include <gtest/gtest.h>
#include <xxhash.h>

#include <random>
#include <vector>

#include "kernels/packing_version.h"
#include "unit/kernels/random_panels.h"

namespace quire {
namespace {

// A matrix of each type, of random bytes.
uint64_t hash_of_all_types() {
  constexpr int kRows = 37, kCols = 768;
  uint64_t hash = 0;
  std::mt19937_64 random(1);
  for (const TensorTypeInfo& t : tensor_types()) {
    if (!t.loadable) continue;
    const size_t bytes = size_t{kRows} * kCols / t.block_elements * t.block_bytes;
    std::vector<uint64_t> words(bytes / sizeof(uint64_t) + 1);
    for (uint64_t& word : words) word = random();
    const auto source = std::as_bytes(std::span(words)).first(bytes);
    const testing::OwnedMatrix m = testing::pack(t.type, kRows, kCols, source);
    hash = XXH3_64bits_withSeed(m.memory.data(), m.matrix.bytes(), hash);
  }
  return hash;
}

TEST(PackedBytes, ChangeWithTheVersion) {
  EXPECT_EQ(kPackingVersion, 3);
  EXPECT_EQ(hash_of_all_types(), 2605621368826198136u)
      << "Packing has changed: increase kPackingVersion (unless there is only a new type), "
         "and note the version and the hash here.";
}

}  // namespace
}  // namespace quire
