// Attention on the emulated device, next to the CPU's, and next to itself with other batches.
#include "cuda/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/team.h"
#include "cuda/emulated/device.h"
#include "cuda/kernels/attention_merge.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/cpu_backend.h"
#include "unit/cuda/device_memory.h"
#include "unit/cuda/device_values.h"

namespace quire::cuda {
namespace {

struct AttentionCase {
  KvType type = KvType::kBf16;
  int heads = 2, kv_heads = 1, key_dim = 32, value_dim = 32;
  int window = 0;
  bool causal = true;
  float soft_cap = 0;
  bool slopes = false, sinks = false;
  // Of each sequence, its length and the rows at its end that attend.
  struct Sequence {
    int tokens, rows;
  };
  std::vector<Sequence> sequences = {{21, 1}};
};

// How far results may be from the CPU's, relative to the largest of a head. With f32 and f16 caches only the order of sums differs.
// Else weights are rounded to bf16, which a tiny difference before may turn over; int4 keys are rounded to bf16, too.
float tolerance_of(KvType type) {
  if (!multiplies_bf16(type)) return 2e-5f;
  return type == KvType::kInt4 ? 1e-2f : 3e-3f;
}

constexpr int kUnits = 160;

// Sequences in a cache on both sides, with garbage wherever no token is.
class CachedSequences {
 public:
  CachedSequences(Device& device, Team& team, const AttentionCase& c)
      : case_(c),
        device_(device),
        cpu_("reference", team),
        memory_(device),
        shape_{{c.type,
                {{.kind = LayerCache::Kind::kKeysValues, .kv_heads = 1, .key_dim = 8, .value_dim = 8},
                 {.kind = LayerCache::Kind::kKeysValues,
                  .kv_heads = c.kv_heads,
                  .key_dim = c.key_dim,
                  .value_dim = c.value_dim}}},
               kUnits},
        on_cpu_(cpu_, shape_),
        on_device_(memory_, shape_),
        q_(device, rows_of(c.sequences), c.heads * c.key_dim, 1),
        slopes_(device, 1, c.heads, 2),
        sinks_(device, 1, c.heads, 3) {
    std::vector<int32_t> units(kUnits);
    std::iota(units.begin(), units.end(), 0);
    std::shuffle(units.begin(), units.end(), std::mt19937(4));
    size_t used = 0;
    for (const AttentionCase::Sequence& sequence : c.sequences) {
      const auto count = static_cast<size_t>((sequence.tokens + kPageTokens - 1) / kPageTokens);
      EXPECT_LE(used + count, units.size());
      pages_.emplace_back(units.begin() + static_cast<ptrdiff_t>(used),
                          units.begin() + static_cast<ptrdiff_t>(used + count));
      used += count;
    }
    std::memset(on_cpu_.units_data().data(), 0xff, on_cpu_.units_data().size());
    store(team);
    std::vector<std::byte> bytes(shape_.layout.unit_bytes());
    for (int unit = 0; unit < kUnits; ++unit) {
      const CachePlace place{.index = unit, .offset = 0, .size = bytes.size()};
      on_cpu_.read(place, bytes);
      on_device_.write(place, bytes);
    }
  }

  static int rows_of(std::span<const AttentionCase::Sequence> sequences) {
    int rows = 0;
    for (const AttentionCase::Sequence& sequence : sequences) rows += sequence.rows;
    return rows;
  }
  std::vector<AttentionSpan> spans() const {
    std::vector<AttentionSpan> spans;
    int row = 0;
    for (size_t i = 0; i < pages_.size(); ++i) {
      const auto [tokens, rows] = case_.sequences[i];
      spans.push_back({pages_[i].data(), row, rows, tokens - rows});
      row += rows;
    }
    return spans;
  }

  std::vector<float> attend_on_cpu(Team& team) {
    TwinRows out(device_, rows_of(case_.sequences), case_.heads * case_.value_dim, 5);
    AttentionOp op(team, {.max_rows = rows_of(case_.sequences),
                          .max_positions = 4096,
                          .tiles_per_row = AttentionOp::tiles_per_row(case_.heads, case_.kv_heads),
                          .value_dim = case_.value_dim});
    op.run(cpu_.compute(Activations::kF32), spec(q_.host(), out.host(), on_cpu_, slopes_.host(), sinks_.host()),
           spans());
    return {out.numbers().begin(), out.numbers().end()};
  }
  // In one call for each list of spans. memory: bytes for splits.
  std::vector<float> attend_on_device(const std::vector<std::vector<AttentionSpan>>& calls, size_t memory) {
    TwinRows out(device_, rows_of(case_.sequences), case_.heads * case_.value_dim, 5);
    std::byte* const splits = device_.allocate(std::max<size_t>(memory, 1));
    Stream stream(device_, false);
    AttentionLists lists;
    for (const std::vector<AttentionSpan>& spans : calls) {
      attend(stream, lists, spec(q_.on_device(), out.on_device(), on_device_, slopes_.on_device(), sinks_.on_device()),
             spans, {splits, memory});
      stream.finish();
    }
    device_.free(splits);
    return out.download();
  }

  void check(Team& team) {
    const std::vector<float> wanted = attend_on_cpu(team);
    for (const size_t memory : {size_t{0}, size_t{1} << 20}) compare(wanted, attend_on_device({spans()}, memory));
  }

 private:
  void store(Team& team) {
    for (size_t i = 0; i < pages_.size(); ++i) {
      const int tokens = case_.sequences[i].tokens;
      TwinRows q(device_, tokens, case_.key_dim, 0), k(device_, tokens, case_.kv_heads * case_.key_dim, 10),
          v(device_, tokens, case_.kv_heads * case_.value_dim, 11 + static_cast<uint32_t>(i));
      // Keys have much in common, and some are looked at more than others.
      for (int t = 0; t < tokens; ++t) {
        for (int d = 0; d < k.host().cols; ++d) {
          float& x = k.host().row(t)[d];
          x = x * (t % 13 == 5 ? 1.5f : 0.5f) + 0.3f * static_cast<float>(d % 3);
        }
      }
      const AttentionSpan span{pages_[i].data(), 0, tokens, 0};
      quire::position_and_store(cpu_.compute(Activations::kF32),
                                {.q = q.host(),
                                 .k = k.host(),
                                 .v = v.host(),
                                 .heads = 1,
                                 .key_dim = case_.key_dim,
                                 .value_dim = case_.value_dim,
                                 .cache = on_cpu_,
                                 .layer = 1},
                                {&span, 1}, tokens);
    }
    static_cast<void>(team);
  }
  AttentionSpec spec(const Rows& q, const Rows& out, const CacheMemory& cache, const Rows& slopes, const Rows& sinks) {
    return {.q = q,
            .out = out,
            .cache = cache,
            .layer = 1,
            .heads = case_.heads,
            .scale = 1.0f / std::sqrt(static_cast<float>(case_.key_dim)),
            .window = case_.window,
            .causal = case_.causal,
            .soft_cap = case_.soft_cap,
            .slopes = case_.slopes ? slopes.data : nullptr,
            .sinks = case_.sinks ? sinks.data : nullptr};
  }
  void compare(const std::vector<float>& wanted, const std::vector<float>& got) {
    const size_t stride = row_stride(case_.heads * case_.value_dim);
    for (int row = 0; row < rows_of(case_.sequences); ++row) {
      for (int head = 0; head < case_.heads; ++head) {
        const size_t at = static_cast<size_t>(row) * stride + static_cast<size_t>(head * case_.value_dim);
        float largest = 0, error = 0;
        for (size_t i = at; i < at + static_cast<size_t>(case_.value_dim); ++i) {
          largest = std::max(largest, std::abs(wanted[i]));
          const float off = std::abs(wanted[i] - got[i]);
          error = off <= error ? error : off;  // NaN is an error
        }
        ASSERT_LE(error, tolerance_of(case_.type) * largest) << "row " << row << " head " << head;
      }
    }
  }

  AttentionCase case_;
  Device& device_;
  CpuBackend cpu_;
  DeviceMemory memory_;
  CacheShape shape_;
  CacheMemory on_cpu_, on_device_;
  TwinRows q_, slopes_, sinks_;
  std::vector<std::vector<int32_t>> pages_;
};

class DeviceAttention : public ::testing::TestWithParam<KvType> {
 protected:
  void check(AttentionCase c) {
    c.type = GetParam();
    CachedSequences(device_, team_, c).check(team_);
  }

  EmulatedDevice device_;
  Team team_{1};
};

TEST_P(DeviceAttention, OfOneRowAndOfFew) {
  check({});
  check({.heads = 3, .kv_heads = 3, .sequences = {{1, 1}, {64, 2}, {17, 3}}});
}

TEST_P(DeviceAttention, OfManyRows) { check({.sequences = {{70, 40}, {33, 1}}}); }

TEST_P(DeviceAttention, WithHeadsOfAllSizes) {
  check({.heads = 1, .key_dim = 64, .value_dim = 64, .sequences = {{40, 1}, {40, 36}}});
  check({.heads = 1, .key_dim = 80, .value_dim = 80, .sequences = {{20, 1}, {40, 36}}});
  check({.heads = 7, .key_dim = 128, .value_dim = 128, .sequences = {{37, 1}, {21, 6}}});
  check({.heads = 2, .key_dim = 22, .value_dim = 6, .sequences = {{37, 1}, {37, 30}}});
  check({.heads = 4, .key_dim = 192, .value_dim = 128, .sequences = {{20, 1}, {20, 10}}});
}

TEST_P(DeviceAttention, OfLatents) {
  check({.heads = 20, .key_dim = 576, .value_dim = 512, .sequences = {{19, 1}, {18, 2}}});
}

TEST_P(DeviceAttention, OfSeveralSplits) {
  check({.heads = 1, .key_dim = 16, .value_dim = 16, .sequences = {{1100, 1}, {513, 1}, {500, 1}}});
  check({.key_dim = 16, .value_dim = 16, .sequences = {{1030, multiplies_bf16(GetParam()) ? 18 : 2}}});
}

TEST_P(DeviceAttention, ThroughWindows) {
  check({.window = 20, .sequences = {{70, 1}, {90, 40}, {5, 1}}});
  check({.heads = 1, .key_dim = 16, .value_dim = 16, .window = 600, .sequences = {{1200, 1}, {1150, 3}}});
}

TEST_P(DeviceAttention, OfLaterTokens) {
  check({.causal = false, .sequences = {{70, 1}, {70, 30}}});
  check({.window = 9, .causal = false, .sequences = {{70, 30}}});
}

TEST_P(DeviceAttention, WithSoftCapSlopesAndSinks) {
  check({.heads = 4, .kv_heads = 2, .soft_cap = 3, .sinks = true, .sequences = {{70, 1}, {50, 20}}});
  check({.heads = 4, .kv_heads = 2, .slopes = true, .sequences = {{70, 1}, {50, 20}}});
  check({.sinks = true, .sequences = {{600, 1}}});
}

// Each row alone, in chunks, or all together; with splits as launches or within a block of threads.
TEST_P(DeviceAttention, GivesARowTheSameBitsWhateverTheBatch) {
  const bool plain = !multiplies_bf16(GetParam());  // the plain kernel is slow to emulate
  for (const int dim : {16, 72, 144}) {
    AttentionCase c{.type = GetParam(), .heads = plain ? 1 : 6, .key_dim = dim, .value_dim = dim};
    c.window = dim == 72 ? 20 : 0;
    c.sinks = dim == 16;
    c.sequences = {{dim == 16 ? 1030 : 75, 6}, {45, 7}};
    CachedSequences cached(device_, team_, c);
    const std::vector<AttentionSpan> all = cached.spans();
    const std::vector<float> together = cached.attend_on_device({all}, size_t{1} << 20);
    std::vector<std::vector<AttentionSpan>> calls[3];
    std::vector<AttentionSpan> single;
    for (const AttentionSpan& span : all) {
      for (int row = 0; row < span.rows; ++row) single.push_back({span.pages, span.row + row, 1, span.position + row});
      for (int row = 0; row < span.rows; row += 4)
        calls[1].push_back({{span.pages, span.row + row, std::min(4, span.rows - row), span.position + row}});
      calls[2].push_back({span});
    }
    calls[0].push_back(single);
    for (const auto& list : calls) {
      for (const size_t memory : {size_t{0}, size_t{100000}}) {
        const std::vector<float> parts = cached.attend_on_device(list, memory);
        EXPECT_EQ(std::memcmp(parts.data(), together.data(), parts.size() * sizeof(float)), 0)
            << "heads of " << dim << ", " << memory << " bytes, list " << &list - calls;
      }
    }
  }
}

std::string name_of(KvType type) {
  constexpr const char* kNames[] = {"F32", "Bf16", "F16", "Int8", "Int4", "Fp8"};
  return kNames[static_cast<int>(type)];
}
INSTANTIATE_TEST_SUITE_P(AllTypes, DeviceAttention,
                         ::testing::Values(KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8, KvType::kFp8,
                                           KvType::kInt4),
                         [](const auto& info) { return name_of(info.param); });

// What one thread would merge, one split after the other.
TEST(MergeSplits, MergesInOrderHoweverManySplits) {
  constexpr int kKvHeads = 2, kQueries = 3;
  std::mt19937 random(5);
  std::normal_distribution<float> numbers;
  EmulatedDevice device;
  for (const int dim : {16, 40, 144}) {
    for (const int splits : {1, 2, 31, 32, 33, 70}) {
      const int padded = (dim + 15) / 16 * 16, count = kKvHeads * splits * kQueries;
      std::vector<float> values, sums;
      for (int i = 0; i < count * padded; ++i) values.push_back(numbers(random));
      for (int i = 0; i < count; ++i) {
        const bool empty = random() % 4 == 0;  // all of its tokens are hidden
        sums.push_back(empty ? minus_infinity() : 3 * numbers(random));
        sums.push_back(empty ? 0 : 1 + std::abs(numbers(random)));
      }
      const OnDevice<QueryTile> tile(device, std::vector<QueryTile>{{.table = 0,
                                                                     .row = 0,
                                                                     .rows = 1,
                                                                     .position = splits * kSplitTokens - 1,
                                                                     .first = 0,
                                                                     .queries = kQueries}});
      const OnDevice<float> partials(device, values), partial_sums(device, sums),
          out(device, static_cast<size_t>(kKvHeads * kQueries * dim));
      AttentionCall call{};
      call.out = out.data();
      call.kv.kv_heads = kKvHeads, call.kv.value_dim = dim, call.kv.type = KvType::kBf16;
      call.tiles = tile.data();
      call.partials = partials.data(), call.partial_sums = partial_sums.data();
      call.splits = splits, call.tile_queries = kQueries, call.group = kQueries;
      call.causal = true;
      run_alone(device, {.x = 1, .y = kKvHeads, .z = kQueries, .threads = MergeSplits::kThreads}, MergeSplits{call});
      const std::vector<float> got = out.values();
      for (int head = 0; head < kKvHeads * kQueries; ++head) {
        for (int d = 0; d < dim; ++d) {
          SplitSums merged = SplitSums::none();
          float value = 0;
          for (int split = 0; split < splits; ++split) {
            const auto at = static_cast<size_t>(call.partial(0, head / kQueries, split, head % kQueries));
            value = merged.absorb({sums[2 * at], sums[2 * at + 1]})(
                value, values[at * static_cast<size_t>(padded) + static_cast<size_t>(d)]);
          }
          const float expected = value * merged.finish(call, head), result = got[static_cast<size_t>(head * dim + d)];
          ASSERT_EQ(float_bits(result), float_bits(expected)) << dim << " " << splits << " " << head << " " << d;
        }
      }
    }
  }
}

TEST(AttentionLists, AreThoseOfEarlierCallsInAStep) {
  EmulatedDevice device;
  Stream stream(device, false);
  AttentionLists lists;
  const int32_t pages[] = {3, 1};
  const AttentionSpan spans[] = {{pages, 0, 1, 20}}, others[] = {{pages, 0, 1, 21}};
  const TileLists::Key key{.window = 0, .group = 1, .few_queries = 16, .many_queries = 128, .causal = true};
  TileLists::Key windowed = key;
  windowed.window = 8;
  for (int step = 0; step < 2; ++step) {
    EXPECT_FALSE(lists.tiles(stream, spans, key).known);
    EXPECT_FALSE(lists.tiles(stream, others, key).known);
    EXPECT_FALSE(lists.tiles(stream, spans, windowed).known);
    EXPECT_FALSE(lists.runs(stream, spans, false).known);
    EXPECT_FALSE(lists.runs(stream, spans, true).known);
    EXPECT_TRUE(lists.tiles(stream, spans, key).known);
    EXPECT_EQ(lists.tiles(stream, spans, windowed).lists.key, windowed);
    EXPECT_TRUE(lists.runs(stream, spans, true).known);
    stream.finish();
  }
}

TEST(AttentionMemory, HoldsOneRowOfTheLongestSequence) {
  OperationLimits limits{.max_rows = 4, .max_positions = 1 << 20};
  EXPECT_EQ(AttentionMemory::bytes(limits), 0u);
  limits.attention = {{.heads = 32, .kv_heads = 8, .value_dim = 128}};
  const size_t row = size_t{32} * 2048 * 130 * 4;
  EXPECT_EQ(AttentionMemory::bytes(limits), std::max(row, AttentionMemory::kUsual));
  limits.max_positions = 512;
  EXPECT_EQ(AttentionMemory::bytes(limits), 4 * size_t{32} * 130 * 4);
}

}  // namespace
}  // namespace quire::cuda
