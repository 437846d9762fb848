// What only some families' attention has: soft caps, sinks, slopes, queries that see later tokens, values of another size
// than keys. Every kernel set gives the reference's bits, and the reference the textbook's values.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
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

// All types share all cases.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const KvType type : testing::kKvTypes) {
    const Case plain{type, 4, 2, 32, 200, 0};
    const auto with = [&](auto set) {
      Case c = plain;
      set(c);
      all.push_back(c);
    };
    with([](Case& c) { c.soft_cap = 1.5f; });
    with([](Case& c) { c.sinking = true, c.window = 30; });
    with([](Case& c) { c.sloped = true, c.tokens = 530; });
    with([](Case& c) { c.causal = false; });
    with([](Case& c) { c.causal = false, c.window = 21, c.tokens = 600; });
    with([](Case& c) { c.causal = false, c.sloped = true, c.heads = 8, c.tokens = 75; });
    with([](Case& c) { c.dim = 576, c.value_dim = 512, c.heads = 8, c.kv_heads = 1, c.tokens = 70; });
    with([](Case& c) { c.dim = 24, c.value_dim = 40; });
    with([](Case& c) { c.dim = 192, c.value_dim = 128, c.heads = 2, c.tokens = 70; });
    with([](Case& c) { c.soft_cap = 2, c.sinking = c.sloped = true, c.window = 40, c.tokens = 560; });
  }
  return all;
}

std::string describe(const Case& c) {
  return "type " + std::to_string(static_cast<int>(c.type)) + " dims " + std::to_string(c.dim) + ", " +
         std::to_string(c.values()) + " window " + std::to_string(c.window) + " cap " + std::to_string(c.soft_cap) +
         (c.causal ? "" : " not causal") + (c.sloped ? " slopes" : "") + (c.sinking ? " sinks" : "");
}

void expect_equal(const std::vector<float>& expected, const std::vector<float>& got, const std::string& what) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    ASSERT_EQ(std::memcmp(&expected[i], &got[i], sizeof(float)), 0)
        << what << " at " << i << ": " << got[i] << " instead of " << expected[i];
  }
}

class AttentionExtras : public ::testing::TestWithParam<const KernelSet*> {};

TEST_P(AttentionExtras, GiveTheReferencesBitsInAnyTiling) {
  if (GetParam() == &reference_kernels()) return;
  testing::ReferenceResults references;
  for (const Case& c : cases()) {
    Sequence other(c, *GetParam(), 2);
    const auto& expected =
        references.next([&] { return Sequence(c, reference_kernels(), 1).run(reference_kernels(), 4, false); });
    const int group = c.heads / c.kv_heads;
    for (const int rows : {1, 3, kMaxTileQueries / group}) {
      if (rows * group > kMaxTileQueries) continue;
      expect_equal(expected, other.run(*GetParam(), rows, false), describe(c));
      expect_equal(expected, other.run(*GetParam(), rows, true), describe(c) + " merged");
      if (HasFatalFailure()) return;
    }
  }
}

TEST(AttentionExtrasReference, DependsOnlyOnItsQueryNotOnItsTile) {
  for (const Case& c : cases()) {
    if (!multiplies_bf16(c.type)) continue;
    Sequence s(c, reference_kernels(), 1);
    const auto expected = s.run(reference_kernels(), 1, false);
    expect_equal(expected, s.run(reference_kernels(), 2, true), describe(c));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(AttentionExtrasReference, ComputesTheTextbookFormulas) {
  for (const Case& c : cases()) {
    if (c.type != KvType::kF32) continue;
    Sequence s(c, reference_kernels(), 3);
    const auto got = s.run(reference_kernels(), 1, false);
    const int group = c.heads / c.kv_heads;
    for (int row = 0; row < c.tokens; row += 13) {
      for (int h = 0; h < c.heads; ++h) {
        const double sink = s.sinks[static_cast<size_t>(h)], slope = s.slopes[static_cast<size_t>(h)];
        std::vector<double> weights(static_cast<size_t>(c.tokens)), out(static_cast<size_t>(c.values()));
        double total = c.sinking ? std::exp(sink) : 0;
        for (int t = 0; t < c.tokens; ++t) {
          if ((c.causal && t > row) || (c.window > 0 && std::abs(row - t) >= c.window)) continue;
          double score = 0;
          for (int d = 0; d < c.dim; ++d)
            score += double{s.q[static_cast<size_t>((row * c.heads + h) * c.dim + d)]} *
                     s.k[static_cast<size_t>((t * c.kv_heads + h / group) * c.dim + d)];
          score /= std::sqrt(c.dim);
          if (c.soft_cap > 0) score = c.soft_cap * std::tanh(score / c.soft_cap);
          if (c.sloped) score -= slope * std::abs(row - t);
          const double weight = std::exp(score);
          total += weight;
          for (int d = 0; d < c.values(); ++d)
            out[static_cast<size_t>(d)] +=
                weight * s.v[static_cast<size_t>((t * c.kv_heads + h / group) * c.values() + d)];
        }
        for (int d = 0; d < c.values(); ++d) {
          ASSERT_NEAR(got[static_cast<size_t>((row * c.heads + h) * c.values() + d)],
                      out[static_cast<size_t>(d)] / total, 3e-5)
              << describe(c) << " row " << row << " head " << h;
        }
      }
    }
  }
}

// A sink of -inf is none, and a large one takes all weight. Extreme ones touch no other head.
TEST_P(AttentionExtras, TreatExtremeSinksAsTheReferenceDoes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8, KvType::kInt4, KvType::kFp8}) {
    Case c{type, 4, 1, 16, 40, 0};
    const auto without = Sequence(c, *GetParam(), 1).run(*GetParam(), 2, false);
    c.sinking = true;
    Sequence reference(c, reference_kernels(), 1), other(c, *GetParam(), 2);
    for (Sequence* s : {&reference, &other}) s->sinks = {-kInfinity, kInfinity, std::nanf(""), 1000.0f};
    const auto expected = reference.run(reference_kernels(), 1, false), got = other.run(*GetParam(), 4, false);
    expect_equal(expected, got, "extreme sinks");
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t head = i / 16 % 4;
      if (head == 0) {
        ASSERT_EQ(got[i], without[i]);
      }
      if (head == 3) {
        ASSERT_EQ(got[i], 0.0f);
      }
    }
  }
}

// An encoder's batch: sequences whose tokens see each other, in tiles and splits of the operation's choice.
TEST_P(AttentionExtras, SeeLaterTokensInAnyBatch) {
  testing::ReferenceResults references;
  for (const int window : {0, 100}) {
    for (const int tokens : {1, 17, 64, 700}) {
      Case c{tokens == 64 ? KvType::kInt4 : KvType::kBf16, 4, 2, 32, tokens, window};
      c.causal = false;
      Sequence s(c, *GetParam(), 4);
      const auto& expected =
          references.next([&] { return Sequence(c, reference_kernels(), 5).run(reference_kernels(), 1, false); });
      for (const int threads : {1, 3}) {
        Team team(threads);
        AttentionOp op(team, {tokens, tokens, AttentionOp::tiles_per_row(c.heads, c.kv_heads), c.values()});
        std::vector<float> got;
        const AttentionSpan span{s.pages.data(), 0, tokens, 0};
        op.run_tiles({*GetParam(), team, Activations::kF32}, s.args(got), {&span, 1});
        expect_equal(expected, got, describe(c) + " tokens " + std::to_string(tokens));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, AttentionExtras, ::testing::ValuesIn(testing::testable_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace quire
