#include "ops/cache_memory.h"
#include "kernels/kernels.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace quire {
namespace {

LayerCache keys_values(int kv_heads, int dim, int window = 0) {
  return {
      .kind = LayerCache::Kind::kKeysValues, .kv_heads = kv_heads, .key_dim = dim, .value_dim = dim, .window = window};
}
LayerCache state(size_t bytes) { return {.kind = LayerCache::Kind::kState, .state_bytes = bytes}; }

TEST(CacheLayout, PutsEqualLayersIntoOneGroup) {
  const CacheLayout layout(KvType::kBf16, std::vector(5, keys_values(2, 32)));
  ASSERT_EQ(layout.groups().size(), 1u);
  EXPECT_EQ(layout.groups()[0], (CacheLayout::Group{0, {0, 1, 2, 3, 4}}));
  EXPECT_EQ(layout.unit_bytes(), 5 * 2 * kv_head_bytes(KvType::kBf16, 32, 32));
  EXPECT_EQ(layout.offset_of(3), 3 * 2 * kv_head_bytes(KvType::kBf16, 32, 32));
}

TEST(CacheLayout, TakesHalfOrAQuarterOfBf16AndTheScalesWithCodes) {
  for (const int dim : {8, 40, 64, 96, 128, 256}) {
    const auto bytes = [&](KvType type) { return CacheLayout(type, {keys_values(3, dim)}).unit_bytes(); };
    constexpr size_t kScales = 3 * kPageTokens * 2;  // of keys and values
    EXPECT_EQ(bytes(KvType::kInt8), bytes(KvType::kBf16) / 2 + kScales * sizeof(float)) << dim;
    EXPECT_EQ(bytes(KvType::kFp8), bytes(KvType::kBf16) / 2 + kScales * 2) << dim;
    EXPECT_EQ(bytes(KvType::kInt4), bytes(KvType::kBf16) / 4 + kScales * 2) << dim;
    for (const KvType type : {KvType::kInt8, KvType::kFp8, KvType::kInt4})
      EXPECT_EQ(bytes(type) % 64, 0u) << dim;  // heads begin at cache lines
  }
}

TEST(CacheLayout, GivesEachRankItsHeadsInTheSameGroups) {
  const CacheLayout layout(KvType::kInt8, {keys_values(5, 64), keys_values(2, 64, 32), state(640), keys_values(5, 64)});
  for (const int ranks : {2, 3, 5}) {
    int heads = 0;
    size_t bytes = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const CacheLayout own = layout.of_rank(rank, ranks);
      EXPECT_TRUE(std::ranges::equal(own.groups(), layout.groups()));
      EXPECT_EQ(own.layers()[0].first_kv_head, heads);
      EXPECT_EQ(own.layers()[0].model_kv_heads, 5);
      EXPECT_EQ(own.layers()[0], own.layers()[3]);
      // Fewer heads than ranks: each has them all.
      EXPECT_EQ(own.layers()[1].kv_heads, ranks > 2 ? 2 : 1);
      EXPECT_EQ(own.layers()[1].model_kv_heads, ranks > 2 ? 0 : 2);
      EXPECT_EQ(own.state_bytes(), layout.state_bytes());
      heads += own.layers()[0].kv_heads;
      bytes += own.unit_bytes();
    }
    EXPECT_EQ(heads, 5);
    EXPECT_EQ(layout.of_all_ranks(ranks).unit_bytes(), bytes);
    EXPECT_EQ(layout.of_all_ranks(ranks).state_bytes(), layout.state_bytes() * static_cast<size_t>(ranks));
  }
  EXPECT_EQ(layout.of_rank(0, 1).identity(), layout.identity());
  EXPECT_EQ(layout.of_all_ranks(1).unit_bytes(), layout.unit_bytes());
}

TEST(CacheLayout, GivesEachStageItsLayersInTheSameGroups) {
  const CacheLayout layout(KvType::kInt8, {state(640), keys_values(2, 64), state(64), keys_values(2, 64)});
  const CacheLayout stages[] = {layout.of_layers(0, 2), layout.of_layers(2, 3), layout.of_layers(3, 4)};
  for (const CacheLayout& own : stages) EXPECT_TRUE(std::ranges::equal(own.groups(), layout.groups()));
  const size_t page = page_bytes(layout.type(), layout.layers()[1]);
  EXPECT_EQ(stages[0].unit_bytes(), page);
  EXPECT_EQ(stages[0].state_bytes(), 640u);
  EXPECT_EQ(stages[0].layers()[3].kv_heads, 0);
  EXPECT_EQ(stages[0].layers()[1].model_kv_heads, 2);
  // Its own state is the first, and it has no keys, but units all the same.
  EXPECT_EQ(stages[1].offset_of(2), 0u);
  EXPECT_EQ(stages[1].state_bytes(), 64u);
  EXPECT_EQ(stages[1].unit_bytes(), 64u);
  EXPECT_EQ(stages[2].offset_of(3), 0u);
  EXPECT_EQ(stages[2].unit_bytes(), page);
  EXPECT_EQ(stages[2].state_bytes(), 64u);  // likewise
  EXPECT_EQ(layout.of_parts(stages).unit_bytes(), 2 * page + 64);
  EXPECT_EQ(layout.of_parts(stages).state_bytes(), 640u + 64 + 64);
}

TEST(CacheLayout, CutsLayersOfDifferentWindowsIntoGroupsOfEqualSize) {
  std::vector<LayerCache> layers;  // Gemma 3's pattern: five layers with a window, one without
  for (int i = 0; i < 18; ++i) layers.push_back(keys_values(1, 256, i % 6 == 5 ? 0 : 512));
  const CacheLayout layout(KvType::kBf16, layers);
  ASSERT_EQ(layout.groups().size(), 6u);
  EXPECT_EQ(layout.groups()[0], (CacheLayout::Group{0, {5, 11, 17}}));
  EXPECT_EQ(layout.groups()[1], (CacheLayout::Group{512, {0, 1, 2}}));
  EXPECT_EQ(layout.group_of(4), 2);
  EXPECT_EQ(layout.unit_bytes(), 3 * kv_head_bytes(KvType::kBf16, 256, 256));
  // One group grows, five keep a window.
  EXPECT_EQ(layout.sequence_bytes(32768), (2048 + 5 * 33) * layout.unit_bytes());
}

TEST(CacheLayout, GivesUnitsThatHoldTheLargestLayer) {
  const CacheLayout layout(KvType::kBf16, {keys_values(2, 16, 64), keys_values(2, 128), keys_values(2, 16, 64)});
  for (const CacheLayout::Group& group : layout.groups()) {
    size_t bytes = 0;
    for (const int layer : group.layers)
      bytes += page_bytes(KvType::kBf16, layout.layers()[static_cast<size_t>(layer)]);
    EXPECT_LE(bytes, layout.unit_bytes());
  }
  EXPECT_EQ(layout.groups().size(), 2u);
}

TEST(CacheLayout, CountsStatesOncePerSequence) {
  const CacheLayout layout(KvType::kF32, {state(640), keys_values(1, 16), state(128), {}});
  EXPECT_EQ(layout.state_bytes(), 768u);
  EXPECT_EQ(layout.offset_of(2), 640u);
  EXPECT_EQ(layout.group_of(0), -1);
  EXPECT_EQ(layout.sequence_bytes(17), 2 * layout.unit_bytes() + 768);
}

TEST(CacheLayout, CountsTheUnitsOfARowsWindow) {
  const CacheLayout layout(KvType::kBf16, {keys_values(1, 16, 17), keys_values(1, 16)});
  EXPECT_EQ(layout.sequence_units(1), 2u);
  EXPECT_EQ(layout.sequence_units(160), 10u + 2);  // 17 tokens lie in two pages at most
  EXPECT_EQ(layout.sequence_units(160, 16), 10u + 3);
  EXPECT_EQ(layout.sequence_units(160, 160), 10u + 10);
  EXPECT_EQ(layout.token_bytes(), layout.unit_bytes() / kPageTokens);
  EXPECT_EQ(layout.bounded_bytes(160), 2 * layout.unit_bytes());
  EXPECT_EQ(first_visible_page(17, 32), 1);
  EXPECT_EQ(first_visible_page(18, 32), 0);
  EXPECT_EQ(first_visible_page(0, 1000), 0);
}

TEST(CacheLayout, OfAModelThatKeepsOnlyStatesHasNoGroups) {
  const CacheLayout layout(KvType::kBf16, {state(64), state(64)});
  EXPECT_TRUE(layout.groups().empty());
  EXPECT_EQ(layout.unit_bytes(), 0u);
  EXPECT_EQ(layout.sequence_bytes(1000), 128u);
}

TEST(CacheLayout, HasAnIdentityThatDependsOnEveryField) {
  const CacheLayout layout(KvType::kBf16, {keys_values(2, 16, 64), state(64)});
  EXPECT_EQ(layout.identity(), CacheLayout(KvType::kBf16, {keys_values(2, 16, 64), state(64)}).identity());
  EXPECT_NE(layout.identity(), CacheLayout(KvType::kF16, {keys_values(2, 16, 64), state(64)}).identity());
  EXPECT_NE(layout.identity(), CacheLayout(KvType::kInt8, {keys_values(2, 16, 64), state(64)}).identity());
  EXPECT_NE(CacheLayout(KvType::kFp8, {keys_values(2, 16, 64)}).identity(),
            CacheLayout(KvType::kInt8, {keys_values(2, 16, 64)}).identity());
  EXPECT_NE(layout.identity(), CacheLayout(KvType::kBf16, {keys_values(2, 16, 65), state(64)}).identity());
  EXPECT_NE(layout.identity(), CacheLayout(KvType::kBf16, {keys_values(2, 16, 64), state(128)}).identity());
}

Backend& backend() {
  static Team team(1);
  static CpuBackend backend("auto", team);
  return backend;
}

TEST(CacheMemory, CopiesAUnitOfAllLayersAndNoOther) {
  CacheMemory memory(backend(), {{KvType::kBf16, std::vector(3, keys_values(2, 32))}, 4});
  for (int u = 0; u < 4; ++u) std::ranges::fill(memory.unit(u), static_cast<std::byte>(u + 1));
  memory.copy({.of_state = false, .from = 1, .to = 3});
  for (int u = 0; u < 4; ++u) {
    const auto value = static_cast<std::byte>(u == 3 ? 2 : u + 1);
    EXPECT_TRUE(std::ranges::all_of(memory.unit(u), [&](std::byte b) { return b == value; })) << u;
  }
}

TEST(CacheMemory, GivesEachLayerItsPartOfAUnit) {
  CacheMemory memory(backend(), {{KvType::kF32, {keys_values(2, 16), keys_values(1, 32)}}, 2});
  const KvLayer first = kv_layer(memory, 0), second = kv_layer(memory, 1);
  EXPECT_EQ(second.data - first.data, static_cast<ptrdiff_t>(2 * kv_head_bytes(KvType::kF32, 16, 16)));
  EXPECT_EQ(first.data + first.page_stride, memory.unit(1).data());
  EXPECT_EQ(second.kv_heads, 1);
}

TEST(CacheMemory, KeepsStatesApartFromUnits) {
  CacheMemory memory(backend(), {{KvType::kBf16, {state(64), keys_values(1, 16), state(128)}}, 1, 3});
  for (int s = 0; s < 3; ++s) std::ranges::fill(memory.state(s), static_cast<std::byte>(s + 1));
  memory.copy({.of_state = true, .from = 0, .to = 2});
  const std::vector<std::byte> zeros(memory.layout().state_bytes());
  memory.write({.of_state = true, .index = 1, .size = zeros.size()}, zeros);
  EXPECT_EQ(memory.state(2, 2)[127], std::byte{1});
  EXPECT_EQ(memory.state(2, 2).size(), 128u);
  EXPECT_EQ(memory.state(0, 1)[0], std::byte{0});
  std::vector<std::byte> read(16);
  memory.read({.of_state = true, .index = 2, .offset = 64, .size = read.size()}, read);
  EXPECT_EQ(read, std::vector(16, std::byte{1}));
}

}  // namespace
}  // namespace quire
