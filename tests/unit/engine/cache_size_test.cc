#include "engine/cache/cache_size.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "unit/engine/tiny_cache.h"

namespace quire {
namespace {

using testing::tiny_layer;
using testing::tiny_state;

constexpr size_t kGiB = size_t{1} << 30;

EngineOptions options_for(int sequences) {
  EngineOptions o;
  o.max_num_seqs = sequences;
  o.max_num_batched_tokens = 512;
  return o;
}
CacheLayout layout(std::vector<LayerCache> layers) { return {KvType::kBf16, std::move(layers)}; }

TEST(CacheSize, HoldsAllSequencesIfMemoryAllows) {
  const CacheLayout plain = layout({tiny_layer()});
  const CacheSize size = size_cache(options_for(4), plain, 1000, kGiB, kGiB);
  EXPECT_EQ(size.units, 4 * 63);
  EXPECT_EQ(size.max_model_len, 1000);
  EXPECT_EQ(size.states, 0);
  EXPECT_EQ(size.bytes, 4 * 63 * plain.unit_bytes());
  EXPECT_EQ(size.bytes_per_sequence, 0u);
}

TEST(CacheSize, OfWindowsDoesNotGrowWithTheContext) {
  const CacheLayout windows = layout({tiny_layer(64), tiny_layer(64)});
  const CacheSize size = size_cache(options_for(4), windows, 100'000, kGiB, kGiB);
  EXPECT_EQ(size.units, 4 * 5 + 32) << "and the rows of a step";
  EXPECT_EQ(size.bytes_per_sequence, 5 * windows.unit_bytes());
  EngineOptions whole = options_for(4);
  whole.chunked_prefill = false;  // a prompt is held as a whole
  EXPECT_GE(size_cache(whole, windows, 100'000, kGiB, kGiB).units, 4 * 6250);
}

TEST(CacheSize, HasAStatePerSequenceAndCheckpoints) {
  const CacheLayout hybrid = layout({tiny_layer(), tiny_state()}), states = layout({tiny_state()});
  EXPECT_EQ(size_cache(options_for(10), hybrid, 100, kGiB, kGiB).states, 30);
  EXPECT_EQ(size_cache(options_for(2), hybrid, 100, kGiB, kGiB).states, 10);
  const CacheSize pure = size_cache(options_for(2), states, 100'000, kGiB, kGiB);
  EXPECT_EQ(pure.states, 10);
  EXPECT_EQ(pure.units, 0);
  EXPECT_EQ(pure.bytes, 10 * states.state_bytes());
  EXPECT_EQ(pure.bytes_per_sequence, states.state_bytes());
  EngineOptions o = options_for(2);
  o.prefix_cache = false;
  EXPECT_EQ(size_cache(o, hybrid, 100, kGiB, kGiB).states, 2);
  o.prefix_cache = true;
  o.kv_cache_bytes = 2 * states.state_bytes();
  EXPECT_EQ(size_cache(o, states, 100, kGiB, kGiB).states, 2) << "no room for checkpoints";
  o.kv_cache_bytes -= 1;
  EXPECT_THROW(size_cache(o, states, 100, kGiB, kGiB), Error);
}

TEST(CacheSize, ShortensTheContextToFit) {
  const CacheLayout hybrid = layout({tiny_layer(), tiny_state(), tiny_layer(32)});
  EngineOptions o = options_for(3);
  o.kv_cache_bytes = 3 * hybrid.state_bytes() + 20 * hybrid.unit_bytes();
  const CacheSize size = size_cache(o, hybrid, 100'000, kGiB, kGiB);
  EXPECT_EQ(size.max_model_len, 17 * kPageTokens) << "the window takes 3 units";
  EXPECT_EQ(size.units, 20);
  EXPECT_EQ(size.states, 3);
  o.max_model_len = 400;
  EXPECT_THROW(size_cache(o, hybrid, 100'000, kGiB, kGiB), Error);
  o.max_model_len = 200;
  EXPECT_EQ(size_cache(o, hybrid, 100'000, kGiB, kGiB).max_model_len, 200);
}

}  // namespace
}  // namespace quire
