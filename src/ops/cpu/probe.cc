#include "ops/cpu/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/kernels.h"

namespace quire {
namespace {

double seconds_of(const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Two streams, prefetched 1 KiB ahead: the fastest of the variants measured (docs/performance.md).
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

ReadProbe::ReadProbe(Team& team, size_t bytes)
    : team_(team), share_(bytes / static_cast<size_t>(team.size()) / 128 * 128), buffer_(bytes) {
  team.for_tiles(team.size(),
                 [&](int i, int) { std::memset(buffer_.data() + static_cast<size_t>(i) * share_, 1, share_); });
}

double ReadProbe::bandwidth(int runs) {
  double best = 0;
  std::vector<uint64_t> sums(static_cast<size_t>(team_.size()) * 8);
  for (int run = 0; run < runs; ++run) {
    const double seconds = seconds_of([&] {
      team_.for_tiles(team_.size(), [&](int i, int) {
        sums[static_cast<size_t>(i) * 8] = read_all(buffer_.data() + static_cast<size_t>(i) * share_, share_);
      });
    });
    best = std::max(best, static_cast<double>(share_) * team_.size() / seconds);
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
