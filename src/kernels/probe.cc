#include "kernels/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/memory.h"

namespace quire {
namespace {

double seconds_of(const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Two streams, prefetched 1 KiB ahead: the best of what was tried (docs/performance.md).
uint64_t read_all(const std::byte* data, size_t bytes) {
  uint64_t sum = 0;
  const size_t half = bytes / 2;
  for (size_t i = 0; i < half; i += 64) {
    __builtin_prefetch(data + i + 1024);
    __builtin_prefetch(data + half + i + 1024);
    uint64_t a[8], b[8];
    std::memcpy(a, data + i, 64);
    std::memcpy(b, data + half + i, 64);
    for (int k = 0; k < 8; ++k) sum += a[k] ^ b[k];
  }
  return sum;
}

}  // namespace

double read_bandwidth(Team& team, int runs, size_t bytes) {
  const LargeBuffer buffer(bytes);
  const size_t share = bytes / static_cast<size_t>(team.size()) / 128 * 128;
  team.for_tiles(team.size(),
                 [&](int i, int) { std::memset(buffer.data() + static_cast<size_t>(i) * share, 1, share); });
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    std::vector<uint64_t> sums(static_cast<size_t>(team.size()) * 8);
    const double seconds = seconds_of([&] {
      team.for_tiles(team.size(), [&](int i, int) {
        sums[static_cast<size_t>(i) * 8] = read_all(buffer.data() + static_cast<size_t>(i) * share, share);
      });
    });
    best = std::max(best, static_cast<double>(share) * team.size() / seconds);
  }
  return best;
}

double multiply_rate(const Compute& compute, int runs) {
  const auto work = [&](int64_t rounds) {
    std::vector<double> done(static_cast<size_t>(compute.team.size()) * 8);
    const double seconds = seconds_of([&] {
      compute.team.for_tiles(compute.team.size(), [&](int i, int) {
        done[static_cast<size_t>(i) * 8] = compute.kernels.peak(compute.activations, rounds);
      });
    });
    double total = 0;
    for (const double d : done) total += d;
    return std::pair{total / seconds, seconds};
  };
  int64_t rounds = 10'000;
  while (work(rounds).second < 0.02) rounds *= 2;
  double best = 0;
  for (int run = 0; run < runs; ++run) best = std::max(best, work(rounds).first);
  return best;
}

}  // namespace quire
