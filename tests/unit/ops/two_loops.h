// Kernels with two loops for up to 4 rows. The one that is not built in takes a hundredth of the time.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <span>

#include "kernels/kernels.h"

namespace quire::testing {

inline constexpr LinearLoop kSlowLoop{.kind = LinearLoop::Kind::kShared, .panels = 4},
    kFastLoop{.kind = LinearLoop::Kind::kStream, .panels = 2, .ahead = 4096};

inline size_t two_loops(const PackedMatrix&, Activations, int rows, std::span<LinearLoop, kMostLinearLoops> loops) {
  loops[0] = kSlowLoop, loops[1] = kFastLoop;
  return rows <= 4 ? 2 : 1;
}

// Computes nothing.
inline void wait_for_loop(const LinearArgs& a, int, int, int, int) {
  ASSERT_TRUE(a.loop && (*a.loop == kSlowLoop || *a.loop == kFastLoop));
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(*a.loop == kFastLoop ? 5 : 500);
  while (std::chrono::steady_clock::now() < end) continue;
}

inline KernelSet two_loop_kernels() {
  KernelSet kernels = reference_kernels();
  kernels.linear = wait_for_loop;
  kernels.linear_loops = two_loops;
  return kernels;
}

}  // namespace quire::testing
