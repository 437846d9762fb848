// Which accesses of the threads of a block, or of a cluster of blocks, barriers put in order: vector clocks (Mattern, "Virtual
// Time and Global States of Distributed Systems", 1989), one for each warp. A warp's own clock ticks at each of its barriers; a
// barrier shows each warp the clocks of all others.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire::cuda::emulated {

class BlockClocks {
 public:
  static constexpr size_t kMostWarps = 64;
  using Warps = uint64_t;  // a bit for each
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
  // A warp announces what it has done so far, to those that see `to`.
  void release(int warp, Past& to) {
    const auto w = static_cast<size_t>(warp);
    ++past_[w][w];
    join(to, past_[w]);
  }
  void acquire(int warp, const Past& from) { join(past_[static_cast<size_t>(warp)], from); }
  static void join(Past& to, const Past& from) {
    for (size_t v = 0; v < kMostWarps; ++v) to[v] = std::max(to[v], from[v]);
  }
  // warps: those at the barrier.
  void sync_warps(Warps warps) {
    Past joined{};
    for (size_t w = 0; w < kMostWarps; ++w) {
      if (!(warps >> w & 1)) continue;
      release(static_cast<int>(w), joined);
    }
    for (size_t w = 0; w < kMostWarps; ++w) {
      if (warps >> w & 1) past_[w] = joined;
    }
  }

 private:
  std::array<Past, kMostWarps> past_{};
};

}  // namespace quire::cuda::emulated
