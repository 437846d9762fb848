// What this machine can do at best, measured now: the figures that benchmarks stand beside.
#pragma once

#include "base/memory.h"
#include "kernels/ops.h"

namespace quire {

// Streams through memory of its own (far more than the caches hold, in huge pages), made once so that benchmarks can
// probe between their samples. The team outlives it.
class ReadProbe {
 public:
  explicit ReadProbe(Team& team, size_t bytes = size_t{512} << 20);
  // Bytes per second that the team reads: each thread its own part, with prefetch, the best of `runs`.
  double bandwidth(int runs = 3);

 private:
  Team& team_;
  size_t share_;  // bytes of a thread
  LargeBuffer buffer_;
};

// Multiply-adds per second that the kernel set reaches on registers, all threads of the team together, the best of
// `runs`.
double multiply_rate(const Compute& compute, int runs = 5);

}  // namespace quire
