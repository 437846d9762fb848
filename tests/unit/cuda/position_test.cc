// Positions and the KV cache on the emulated device, next to the CPU: the same bits.
#include "cuda/attention/position.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/team.h"
#include "cuda/emulated/device.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/cpu_backend.h"
#include "unit/cuda/device_memory.h"

namespace quire::cuda {
namespace {

constexpr KvType kTypes[] = {KvType::kF32, KvType::kBf16, KvType::kF16, KvType::kInt8, KvType::kInt4, KvType::kFp8};

struct PositionCase {
  KvType type = KvType::kBf16;
  int heads = 3, kv_heads = 1, key_dim = 20, value_dim = 20;
  bool stores = true;
  NormKind norm = NormKind::kNone;
  bool whole_norm = false, norm_per_head = false, value_norm = false, norm_after_rope = false, bias = false;
  float clip = 0;
  bool q_scales = false;
  RopeKind kind = RopeKind::kNone;
  int rope_dim = 0, rope_offset = 0;
  std::vector<AttentionSpan> spans;
};

class Positions : public ::testing::Test {
 protected:
  void check(const PositionCase& c) {
    int rows = 0;
    for (const AttentionSpan& span : c.spans) rows += span.rows;
    const auto type = static_cast<uint32_t>(c.type);
    TwinRows q(device_, rows, c.heads * c.key_dim, 1), k(device_, rows, c.kv_heads * c.key_dim, 2),
        v(device_, rows, c.kv_heads * c.value_dim, 3), cos_sin(device_, rows, std::max(2, c.rope_dim), 4),
        weights(device_, 1, c.heads * c.key_dim, 5), biases(device_, 1, c.heads * c.key_dim, 6),
        scales(device_, 1, rows, 7 + type);
    // Numbers of all sizes: a few that codes of few bits would lose, zeros, and a whole head of zeros.
    for (size_t i = 0; i < k.numbers().size(); i += 7) k.numbers()[i] *= 20;
    for (size_t i = 0; i < v.numbers().size(); i += 3) v.numbers()[i] = 0;
    std::fill_n(v.host().row(0), c.value_dim, 0.0f);
    k.upload(), v.upload();

    const CacheShape shape{{c.type,
                            {{.kind = LayerCache::Kind::kKeysValues, .kv_heads = 2, .key_dim = 4, .value_dim = 4},
                             {.kind = LayerCache::Kind::kKeysValues,
                              .kv_heads = c.kv_heads,
                              .key_dim = c.key_dim,
                              .value_dim = c.value_dim}}},
                           8};
    CpuBackend cpu("reference", team_);
    DeviceMemory memory(device_);
    const CacheMemory expected(cpu, shape), actual(memory, shape);
    const auto args = [&](bool device, const CacheMemory& cache) {
      const auto side = [&](TwinRows& x) { return device ? x.on_device() : x.host(); };
      const auto norm = [&](int heads, int dim) {
        HeadNorm n;
        n.norm.kind = c.norm;
        n.norm.epsilon = 1e-5f;
        n.norm.weight = side(weights).data;
        n.norm.bias = c.bias ? side(biases).data : nullptr;
        n.groups = c.whole_norm ? 1 : heads;
        n.weight_stride = c.norm_per_head ? static_cast<size_t>(dim) : 0;
        return n;
      };
      PositionArgs a{.q = side(q),
                     .k = side(k),
                     .v = side(v),
                     .heads = c.heads,
                     .key_dim = c.key_dim,
                     .value_dim = c.value_dim,
                     .q_norm = norm(c.heads, c.key_dim),
                     .k_norm = norm(c.kv_heads, c.key_dim),
                     .v_norm = {},
                     .norm_after_rope = c.norm_after_rope,
                     .clip = c.clip,
                     .kind = c.kind,
                     .rope_dim = c.rope_dim,
                     .rope_offset = c.rope_offset,
                     .cos_sin = side(cos_sin),
                     .q_scales = c.q_scales ? side(scales).data : nullptr,
                     .cache = cache,
                     .layer = 1};
      if (c.value_norm) a.v_norm = {.norm = {.kind = NormKind::kRms, .epsilon = 1e-6f}, .groups = c.kv_heads};
      if (!c.stores) a.k.cols = a.v.cols = 0;
      return a;
    };
    quire::position_and_store(cpu.compute(Activations::kF32), args(false, expected), c.spans, rows);
    Stream stream(device_, false);
    AttentionLists lists;
    position_and_store(stream, lists, args(true, actual), c.spans, rows);
    stream.finish();

    const std::vector<float> queries = q.download();
    EXPECT_EQ(std::memcmp(queries.data(), q.numbers().data(), queries.size() * sizeof(float)), 0) << "queries";
    std::vector<std::byte> wanted(expected.layout().unit_bytes()), got(wanted.size());
    for (int unit = 0; unit < expected.units(); ++unit) {
      const CachePlace place{.index = unit, .offset = 0, .size = wanted.size()};
      expected.read(place, wanted);
      actual.read(place, got);
      EXPECT_EQ(wanted, got) << "unit " << unit;
    }
  }

  EmulatedDevice device_;
  Team team_{1};
};

// Two sequences: one begins in the middle of a page and ends in the middle of the next but one, the other is one row.
const int32_t kFirst[] = {5, 2, 7, 1}, kSecond[] = {0, 3};
std::vector<AttentionSpan> two_spans() { return {{kFirst, 0, 25, 10}, {kSecond, 25, 1, 19}}; }

TEST_F(Positions, StoresAllTypesWithTheBitsOfTheCpu) {
  for (const KvType type : kTypes) {
    SCOPED_TRACE(static_cast<int>(type));
    check({.type = type, .heads = 1, .kv_heads = 2, .key_dim = 64, .value_dim = 32, .spans = two_spans()});
    check({.type = type, .heads = 1, .key_dim = 22, .value_dim = 6, .spans = {{kFirst, 0, 3, 15}}});
  }
}

TEST_F(Positions, RotatesHalvesAndNeighboursOfPartsOfHeads) {
  for (const RopeKind kind : {RopeKind::kHalves, RopeKind::kNeighbours}) {
    check({.kind = kind, .rope_dim = 20, .spans = two_spans()});
    check({.key_dim = 24,
           .q_scales = true,
           .kind = kind,
           .rope_dim = 8,
           .rope_offset = 16,
           .spans = {{kFirst, 0, 3, 15}}});
  }
  check({.q_scales = true, .spans = {{kFirst, 0, 3, 15}}});
}

TEST_F(Positions, NormalizesHeadsBeforeAndAfterRotation) {
  for (const bool after : {false, true}) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer, NormKind::kL2}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + (after ? " after" : " before"));
      check({.kv_heads = 2,
             .norm = kind,
             .norm_per_head = kind == NormKind::kLayer,
             .value_norm = true,
             .norm_after_rope = after,
             .bias = kind == NormKind::kLayer,
             .clip = after ? 0 : 0.75f,
             .kind = RopeKind::kHalves,
             .rope_dim = 12,
             .spans = {{kFirst, 0, 3, 15}}});
    }
  }
}

TEST_F(Positions, NormalizesWholeRowsBeforeAndAfterRotation) {
  for (const bool after : {false, true}) {
    check({.kv_heads = 2,
           .norm = NormKind::kRms,
           .whole_norm = true,
           .norm_after_rope = after,
           .kind = RopeKind::kHalves,
           .rope_dim = 20,
           .spans = {{kFirst, 0, 3, 15}}});
  }
}

TEST_F(Positions, ChangesQueriesAloneIfAnotherLayerHasStoredKeysAndValues) {
  check({.stores = false,
         .norm = NormKind::kRms,
         .kind = RopeKind::kHalves,
         .rope_dim = 20,
         .spans = {{kFirst, 0, 3, 15}}});
}

TEST_F(Positions, ComputesAnglesWithTheBitsOfTheCpu) {
  const RopeTable usual{{1.0f, 0.31622776f, 0.1f, 1e-4f, 2.5e-7f}, 1},
      scaled{{0.5f, 0.21f, 0.07f, 3e-5f, 1e-7f}, 1.37f};
  const RotationSpan spans[] = {{&usual, 1, 5, 0}, {&scaled, 6, 2, 131070}, {&usual, 8, 3, (1 << 26) - 3}};
  TwinRows to(device_, 12, 10, 1);
  for (const RotationSpan& span : spans) {
    for (int i = 0; i < span.rows; ++i) span.table->at(span.position + i, to.host().row(span.row + i));
  }
  Stream stream(device_, false);
  rotations(stream, spans, to.on_device());
  stream.finish();
  const std::vector<float> angles = to.download();
  EXPECT_EQ(std::memcmp(angles.data(), to.numbers().data(), angles.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace quire::cuda
