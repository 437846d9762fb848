// Which accesses of a block's threads barriers put in order: vector clocks (Mattern, "Virtual Time and Global States of
// Distributed Systems", 1989), one for each warp. A warp's own clock ticks at each of its barriers; a barrier shows each warp the
// clocks of all others.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire::cuda::emulated {

class BlockClocks {
 public:
  static constexpr size_t kMostWarps = 32;
  // By warp: what it did before this time of its clock is in the past.
  using Past = std::array<uint32_t, kMostWarps>;

  void reset() {
    for (size_t w = 0; w < kMostWarps; ++w) {
      past_[w].fill(0);
      past_[w][w] = 1;
    }
  }
  uint32_t now(int warp) const { return past(warp)[static_cast<size_t>(warp)]; }
  const Past& past(int warp) const { return past_[static_cast<size_t>(warp)]; }

  void sync_warp(int warp) { ++past_[static_cast<size_t>(warp)][static_cast<size_t>(warp)]; }
  // warps: a bit for each warp at the barrier.
  void sync_warps(uint32_t warps) {
    Past joined{};
    for (size_t w = 0; w < kMostWarps; ++w) {
      if (!(warps >> w & 1)) continue;
      ++past_[w][w];
      for (size_t v = 0; v < kMostWarps; ++v) joined[v] = std::max(joined[v], past_[w][v]);
    }
    for (size_t w = 0; w < kMostWarps; ++w) {
      if (warps >> w & 1) past_[w] = joined;
    }
  }

 private:
  std::array<Past, kMostWarps> past_{};
};

}  // namespace quire::cuda::emulated
