// What this machine can do at best, measured now: the figures that benchmarks stand beside.
#pragma once

#include "kernels/ops.h"

namespace quire {

// Bytes per second that the team reads from memory: each thread streams its own part of `bytes` (far more than the
// caches hold) in huge pages with prefetch, the best of `runs`.
double read_bandwidth(Team& team, int runs = 5, size_t bytes = size_t{512} << 20);

// Multiply-adds per second that the kernel set reaches on registers, all threads of the team together, the best of
// `runs`.
double multiply_rate(const Compute& compute, int runs = 5);

}  // namespace quire
