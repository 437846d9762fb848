#include "sampling/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace quire {
namespace {

// Random123's known answers (kat_vectors, "philox4x32 10").
TEST(Philox, MatchesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DiffersBySeedChoicePositionAndPurpose) {
  std::set<double> seen;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    for (const uint32_t choice : {0u, 1u}) {
      for (const uint64_t position : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
        for (const Draw draw : {Draw::kToken, Draw::kXtc, Draw::kDraft, Draw::kAccept, Draw::kResidual})
          seen.insert(uniform_at(seed, choice, position, draw));
      }
    }
  }
  EXPECT_EQ(seen.size(), 90u);
}

TEST(Philox, IsUniform) {
  constexpr int kDraws = 100000, kBins = 64;
  int bins[kBins] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform_at(7, 0, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins[static_cast<int>(u * kBins)];
  }
  double chi2 = 0;
  for (const int n : bins) chi2 += std::pow(n - kDraws / double{kBins}, 2) / (kDraws / double{kBins});
  EXPECT_LT(chi2, 104);  // 63 degrees of freedom: exceeded with probability 0.001
}

}  // namespace
}  // namespace quire
