// Attention over pages: every kernel set gives the reference's bits, whatever the tiles, splits and page placement, and
// the values of the textbook formula.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "ops/cpu/attention.h"
#include "unit/kernels/attention_sequence.h"
#include "unit/kernels/reference_results.h"
#include "unit/kernels/testable_kernels.h"

namespace quire {
namespace {

using testing::Case;
using testing::Sequence;

const Case kCases[] = {
    {KvType::kF32, 4, 2, 16, 40, 0},     {KvType::kBf16, 9, 3, 64, 200, 0},   {KvType::kF16, 8, 8, 8, 70, 0},
    {KvType::kBf16, 4, 2, 32, 150, 24},  {KvType::kF32, 3, 1, 48, 700, 0},    {KvType::kF32, 2, 1, 16, 1100, 600},
    {KvType::kBf16, 2, 1, 80, 560, 100}, {KvType::kBf16, 4, 1, 64, 600, 0},   {KvType::kF16, 4, 1, 40, 131, 17},
    {KvType::kInt8, 9, 3, 64, 200, 0},   {KvType::kInt8, 4, 2, 40, 150, 24},  {KvType::kInt8, 2, 1, 80, 560, 100},
    {KvType::kInt8, 4, 1, 64, 600, 0},   {KvType::kInt8, 16, 1, 128, 90, 0},  {KvType::kInt4, 9, 3, 64, 200, 0},
    {KvType::kInt4, 4, 2, 40, 150, 24},  {KvType::kInt4, 2, 1, 80, 560, 100}, {KvType::kInt4, 4, 1, 64, 600, 0},
    {KvType::kInt4, 16, 1, 128, 90, 0},  {KvType::kFp8, 9, 3, 64, 200, 0},    {KvType::kFp8, 4, 2, 40, 150, 24},
    {KvType::kFp8, 2, 1, 80, 560, 100},  {KvType::kFp8, 16, 1, 128, 600, 0},
};

std::vector<float> run_reference(const Case& c) {
  return Sequence(c, reference_kernels(), 1).run(reference_kernels(), 1, false);
}

class Attention : public ::testing::TestWithParam<const KernelSet*> {};

TEST_P(Attention, GivesTheReferencesBitsInAnyTiling) {
  testing::ReferenceResults references;
  for (const Case& c : kCases) {
    Sequence other(c, *GetParam(), 2);
    const auto& expected = references.next([&] { return run_reference(c); });
    const int group = c.heads / c.kv_heads;
    for (const int rows : {1, 2, 5, kMaxTileQueries / group}) {
      if (rows * group > kMaxTileQueries || (GetParam() == &reference_kernels() && rows != 2)) continue;
      for (const bool merged : {false, true}) {
        const auto got = other.run(*GetParam(), rows, merged);
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_EQ(std::memcmp(&got[i], &expected[i], 4), 0)
              << "dim " << c.dim << " tokens " << c.tokens << " window " << c.window << " rows " << rows << " merged "
              << merged << " at " << i << ": " << got[i] << " instead of " << expected[i];
        }
      }
    }
  }
}

// Tiles of 16 queries whose windows begin in different blocks and splits, so that some of them see nothing of a block
// or split that others see; values in one to four groups of four columns; scales that turn the order of scores around.
TEST_P(Attention, GivesTheReferencesBitsInFullTilesOfAnyShape) {
  if (GetParam() == &reference_kernels()) return;
  testing::ReferenceResults references;
  for (const KvType type : {KvType::kBf16, KvType::kInt8, KvType::kInt4, KvType::kFp8}) {
    for (const int dim : {16, 80, 144, 256}) {
      for (const int window : {0, 3, 64, 509}) {
        const Case c{type, 2, 1, dim, 1060, window, dim == 80 ? 72 : dim};
        Sequence s(c, *GetParam(), 2);
        for (const float scale : {1.0f, 1 / 16.0f, -0.5f, 0.0f, std::numeric_limits<float>::infinity()}) {
          if (scale != 1 / 16.0f && (dim != 16 || window == 3)) continue;
          const auto run = [&](const KernelSet& kernels) {
            std::vector<float> out;
            AttentionArgs args = s.args(out);
            args.scale = scale;
            for (const int row : {0, 57, 505, 570, 1018, 1052})
              kernels.attention(args, s.tile(row, 8, 0, 2, 0, s.splits(row + 7)));
            return out;
          };
          const auto& expected = references.next([&] { return run(reference_kernels()); });
          const auto got = run(*GetParam());
          for (size_t i = 0; i < got.size(); ++i) {
            if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
            ASSERT_EQ(std::memcmp(&got[i], &expected[i], 4), 0)
                << "type " << static_cast<int>(type) << " dim " << dim << " window " << window << " scale " << scale
                << " row " << i / static_cast<size_t>(2 * c.values()) << ": " << got[i] << " instead of "
                << expected[i];
          }
        }
      }
    }
  }
}

// Pages are reused with their old contents: a query sees only its own sequence's tokens.
TEST_P(Attention, SeesNothingOfTokensAfterAQuery) {
  for (const KvType type : testing::kKvTypes) {
    const Case c{type, 4, 2, 48, 90, 0};
    Sequence whole(c, *GetParam(), 4);
    const auto expected = whole.run(*GetParam(), 1, false);
    for (const int tokens : {1, 2, 15, 16, 17, 31, 33, 64, 65, 79}) {
      Case shorter = c;
      shorter.tokens = tokens;
      Sequence s(shorter, *GetParam(), 5);
      std::copy_n(whole.q.begin(), s.q.size(), s.q.begin());
      for (int t = 0; t < tokens; ++t) s.put(*GetParam(), t, whole);
      const auto got = s.run(*GetParam(), 4, false);
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << tokens << " tokens";
    }
  }
}

// Small numbers: products that would be denormal, sums that vanish when the maximum grows.
TEST_P(Attention, KeepsTheReferencesBitsForTinyNumbers) {
  for (const KvType type : testing::kKvTypes) {
    const Case c{type, 2, 1, 32, 300, 0};
    Sequence reference(c, reference_kernels(), 1), other(c, *GetParam(), 2);
    std::mt19937 random(11);
    std::uniform_int_distribution<int> exponent(-140, 6);
    for (Sequence* s : {&reference, &other}) {
      random.seed(11);
      for (auto* x : {&s->q, &s->k, &s->v}) {
        for (float& f : *x) f = std::ldexp(f, exponent(random));
      }
    }
    for (int t = 0; t < c.tokens; ++t) {
      reference.put(reference_kernels(), t, reference);
      other.put(*GetParam(), t, other);
    }
    const auto expected = reference.run(reference_kernels(), 1, false), got = other.run(*GetParam(), 8, false);
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
  }
}

// NaN and infinity have the same effect as in the reference: an overflow does not turn into a plausible answer.
TEST_P(Attention, PropagatesNanAndInfinityAsTheReferenceDoes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const KvType type : testing::kKvTypes) {
    for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      for (int which = 0; which < 3; ++which) {
        const Case c{type, 10, 1, 32, 90, 0};
        const int token = 5 + 7 * which;  // larger scores in later blocks shrink its share
        Sequence reference(c, reference_kernels(), 1), other(c, *GetParam(), 2);
        for (Sequence* s : {&reference, &other}) {
          auto& x = which == 0 ? s->q : which == 1 ? s->k : s->v;
          x[static_cast<size_t>(token * (which == 0 ? c.heads : 1) * c.dim + 9)] = bad;
          for (int i = 0; i < c.dim; ++i) s->k[static_cast<size_t>(70 * c.dim + i)] = 8 * s->q[static_cast<size_t>(i)];
        }
        for (int t = 0; t < c.tokens; ++t) {
          reference.put(reference_kernels(), t, reference);
          other.put(*GetParam(), t, other);
        }
        const auto expected = reference.run(reference_kernels(), 1, false), got = other.run(*GetParam(), 1, false);
        for (size_t i = 0; i < got.size(); ++i) {
          if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
          ASSERT_EQ(std::memcmp(&got[i], &expected[i], 4), 0)
              << bad << " in "
              << "qkv"[which] << " type " << static_cast<int>(type) << " row "
              << i / static_cast<size_t>(c.heads * c.dim) << ": " << got[i] << " instead of " << expected[i];
        }
      }
    }
  }
}

// Codes are finite and scales of unseen tokens are masked, so an overflow stays in the rows that see it.
TEST_P(Attention, KeepsAnOverflowInACacheOfCodesFromEarlierRows) {
  constexpr float kBad[] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
  constexpr int kToken = 53;
  for (const KvType type : testing::kCodedTypes) {
    const Case c{type, 2, 1, 32, 90, 0};
    const size_t before = static_cast<size_t>(kToken * c.heads * c.dim);
    const auto expected = Sequence(c, *GetParam(), 1).run(*GetParam(), 8, false);
    for (const float bad : kBad) {
      Sequence s(c, *GetParam(), 1);
      s.k[kToken * 32 + 3] = s.v[kToken * 32 + 20] = bad;
      s.put(*GetParam(), kToken, s);
      const auto got = s.run(*GetParam(), 8, false);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), before * sizeof(float)), 0) << bad;
      for (size_t i = before; i < got.size(); ++i) ASSERT_TRUE(std::isnan(got[i])) << bad << " at " << i;
    }
  }
}

// The result of a cache of codes is that of float32 with the errors of its codes: not the bits, but the size of what is
// lost is known. Random heads have no large numbers, so a rotation gains nothing here.
TEST_P(Attention, LosesWithCodesWhatTheirStepsAre) {
  const auto error_of = [&](KvType type) {
    Case c{KvType::kF32, 4, 2, 64, 150, 0};
    const auto exact = Sequence(c, *GetParam(), 1).run(*GetParam(), 4, false);
    c.type = type;
    const auto got = Sequence(c, *GetParam(), 1).run(*GetParam(), 4, false);
    double errors = 0, squares = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      errors += std::pow(double{got[i]} - double{exact[i]}, 2);
      squares += std::pow(double{exact[i]}, 2);
    }
    return std::sqrt(errors / squares);
  };
  const double bf16 = error_of(KvType::kBf16), int8 = error_of(KvType::kInt8), fp8 = error_of(KvType::kFp8),
               int4 = error_of(KvType::kInt4);
  EXPECT_LT(bf16, 0.004);
  EXPECT_LT(bf16, int8);
  EXPECT_LT(int8, 0.02);
  EXPECT_LT(int8, fp8);
  EXPECT_LT(fp8, 0.06);
  EXPECT_LT(fp8, int4);
  EXPECT_LT(int4, 0.25);
}

// Every query of random batches (several sequences, chunks at any depth, teams of any size) has the bits that the
// reference gives it alone.
TEST_P(Attention, GivesEachQueryOfABatchTheSameBitsAsAlone) {
  constexpr int kDims[] = {8, 16, 40, 64, 80, 96, 128};
  std::mt19937 random(static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed()) + 99);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 24; ++round) {
    const int kv_heads = pick(1, 3), group = pick(1, 16), dim = kDims[pick(0, 6)];
    Case c{testing::kKvTypes[round % 6], kv_heads * group, kv_heads, dim, 0, pick(0, 2) == 0 ? pick(1, 700) : 0};
    std::vector<Sequence> sequences, alone;
    struct Part {
      int position, rows;
    };
    std::vector<Part> parts;
    int rows = 0, most = 1;
    for (int i = pick(1, 4); i > 0; --i) {
      c.tokens = pick(1, pick(0, 2) == 0 ? 1300 : 200);
      const int count = std::min(c.tokens, pick(0, 1) == 0 ? 1 : pick(1, 40));
      const auto seed = static_cast<unsigned>(pick(0, 1000));
      sequences.emplace_back(c, *GetParam(), seed);
      alone.emplace_back(c, reference_kernels(), seed + 1);
      parts.push_back({c.tokens - count, count});
      rows += count;
      most = std::max(most, c.tokens);
    }
    // One cache for all: their memories concatenated.
    const size_t stride = static_cast<size_t>(c.heads * c.dim);
    std::vector<std::byte> memory;
    std::vector<float> q, got(static_cast<size_t>(rows) * stride);
    std::vector<AttentionSpan> spans;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = sequences[i];
      const auto moved = static_cast<int32_t>(memory.size() / s.kv.page_stride);
      for (int32_t& page : s.pages) page += moved;
      memory.insert(memory.end(), s.memory.begin(), s.memory.end());
      spans.push_back({s.pages.data(), static_cast<int>(q.size() / stride), parts[i].rows, parts[i].position});
      q.insert(q.end(), s.q.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(parts[i].position) * stride),
               s.q.end());
    }
    KvLayer kv = sequences[0].kv;
    kv.data = memory.data();
    Team team(pick(1, 4));
    AttentionOp op(team, {rows, most, AttentionOp::tiles_per_row(c.heads, c.kv_heads), c.dim});
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
    op.run_tiles({*GetParam(), team, Activations::kF32},
                 {.q = q.data(),
                  .q_stride = stride,
                  .out = got.data(),
                  .out_stride = stride,
                  .kv = &kv,
                  .heads = c.heads,
                  .scale = scale,
                  .window = c.window},
                 spans);
    for (size_t i = 0; i < alone.size(); ++i) {
      std::vector<float> expected;
      const AttentionArgs args = alone[i].args(expected);
      for (int n = 0; n < 4; ++n) {
        const int row = pick(0, parts[i].rows - 1), position = parts[i].position + row, head = pick(0, c.heads - 1);
        reference_kernels().attention(args, alone[i].tile(position, 1, head, 1, 0, alone[i].splits(position)));
        const auto at = static_cast<size_t>(head * c.dim);
        ASSERT_EQ(std::memcmp(&got[static_cast<size_t>(spans[i].row + row) * stride + at],
                              &expected[static_cast<size_t>(position) * stride + at],
                              static_cast<size_t>(c.dim) * sizeof(float)),
                  0)
            << "round " << round << " type " << static_cast<int>(c.type) << " heads " << c.heads << "/" << c.kv_heads
            << " dim " << c.dim << " window " << c.window << " position " << position << " head " << head << " team "
            << team.size();
      }
    }
  }
}

// More splits than AttentionOp keeps at a time: heads are processed in batches.
TEST_P(Attention, MergesMoreSplitsThanItKeepsAtATime) {
  const Case c{KvType::kBf16, 7, 7, 16, 8 * kAttentionSplit + 5, 0};
  Sequence s(c, *GetParam(), 6), reference(c, reference_kernels(), 7);
  std::vector<float> got, expected;
  AttentionArgs args = s.args(got);
  const int last = c.tokens - 1;
  args.q += static_cast<size_t>(last) * args.q_stride;
  args.out += static_cast<size_t>(last) * args.out_stride;
  Team team(4);
  AttentionOp op(team, {1, c.tokens, AttentionOp::tiles_per_row(c.heads, c.kv_heads), c.dim});
  const AttentionSpan span{s.pages.data(), 0, 1, last};
  op.run_tiles({*GetParam(), team, Activations::kF32}, args, {&span, 1});
  const AttentionArgs all = reference.args(expected);
  for (int h = 0; h < c.heads; ++h) {
    reference_kernels().attention(all, reference.tile(last, 1, h, 1, 0, reference.splits(last)));
  }
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
}

TEST_P(Attention, ComputesTheTextbookSoftmax) {
  for (const Case& c : kCases) {
    if (c.type != KvType::kF32) continue;
    Sequence s(c, *GetParam(), 3);
    const auto got = s.run(*GetParam(), 1, false);
    const int group = c.heads / c.kv_heads;
    for (int row = 0; row < c.tokens; row += 13) {
      for (int h = 0; h < c.heads; ++h) {
        std::vector<double> weights;
        double total = 0;
        const int begin = c.window > 0 ? std::max(0, row + 1 - c.window) : 0;
        for (int t = begin; t <= row; ++t) {
          double score = 0;
          for (int d = 0; d < c.dim; ++d)
            score += double{s.q[static_cast<size_t>((row * c.heads + h) * c.dim + d)]} *
                     s.k[static_cast<size_t>((t * c.kv_heads + h / group) * c.dim + d)];
          weights.push_back(std::exp(score / std::sqrt(c.dim)));
          total += weights.back();
        }
        for (int d = 0; d < c.dim; ++d) {
          double expected = 0;
          for (int t = begin; t <= row; ++t)
            expected += weights[static_cast<size_t>(t - begin)] / total *
                        s.v[static_cast<size_t>((t * c.kv_heads + h / group) * c.dim + d)];
          ASSERT_NEAR(got[static_cast<size_t>((row * c.heads + h) * c.dim + d)], expected, 2e-5);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, Attention, ::testing::ValuesIn(testing::testable_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace quire
