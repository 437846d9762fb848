// What this machine can do at best, measured now: the limits that benchmarks compare with.
#pragma once

#include "base/memory.h"
#include "ops/cpu/compute.h"

namespace quire {

// Measures read bandwidth over its own memory, far larger than the caches and in huge pages. Allocated once, so that
// benchmarks can probe between their samples. The team must outlive it.
class ReadProbe {
 public:
  explicit ReadProbe(Team& team, size_t bytes = size_t{512} << 20);
  // Bytes per second that the team reads, each thread its own part, with prefetch; the best of `runs`.
  double bandwidth(int runs = 3);

 private:
  Team& team_;
  size_t share_;  // bytes per thread
  LargeBuffer buffer_;
};

// Multiply-adds per second of the kernel set on registers alone, all threads of the team together; the best of `runs`.
double multiply_rate(const Compute& compute, int runs = 5);

}  // namespace quire
