#include "cuda/probe.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/kernels/peak.h"

namespace quire::cuda {
namespace {

constexpr size_t kCopied = size_t{256} << 20;  // several times any L2 cache
constexpr int kRepetitions = 8;

// Memory of a device, for as long as it lives.
class Borrowed {
 public:
  Borrowed(Device& device, size_t bytes) : device_(device), data(device.allocate(bytes)) {}
  ~Borrowed() { device_.free(data); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

 private:
  Device& device_;

 public:
  std::byte* const data;
};

// The fastest of several runs of these launches, less the time that an empty run takes.
double seconds_of_launches(Device& device, std::span<const Launch> launches) {
  using Clock = std::chrono::steady_clock;
  const auto run = [&](std::span<const Launch> some) {
    const auto start = Clock::now();
    device.run(some);
    device.finish();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  double best = 1e9, launch = 1e9;
  for (int i = 0; i < 5; ++i) {
    best = std::min(best, run(launches));
    launch = std::min(launch, run({}));
  }
  return best - launch;
}

// Multiply-adds a second. Numbers have random bits where `random` is set, and those of `fixed`.
template <class Kernel>
double multiply_rate(Device& device, std::byte* from, std::byte* to, uint32_t random, uint32_t fixed) {
  std::vector<uint32_t> numbers(Kernel::kNumbers);
  uint32_t state = 1;
  for (uint32_t& n : numbers) {
    state = state * 1664525 + 1013904223;
    n = (state & random) | fixed;
  }
  device.upload(from, reinterpret_cast<const std::byte*>(numbers.data()), numbers.size() * sizeof(uint32_t));
  constexpr int kRounds = 4000;
  const int blocks = device.facts().processors;
  const Launch multiply =
      make_launch({.x = blocks, .threads = Kernel::kThreads, .shared_bytes = Kernel::kSharedBytes},
                  Kernel{reinterpret_cast<const uint32_t*>(from), reinterpret_cast<float*>(to), kRounds});
  return static_cast<double>(Kernel::kMultiplyAdds) * 8 * kRounds * blocks /
         seconds_of_launches(device, {&multiply, 1});
}

}  // namespace

BackendRates measure_rates(Device& device) {
  BackendRates rates;
  const Borrowed from(device, kCopied), to(device, kCopied);
  {
    constexpr size_t kBlockBytes = size_t{CopyPeak::kThreads} * CopyPeak::kEach * 16;
    const std::vector<Launch> copies(
        kRepetitions,
        make_launch({.x = static_cast<int>(kCopied / kBlockBytes), .threads = CopyPeak::kThreads},
                    CopyPeak{reinterpret_cast<const uint32_t*>(from.data), reinterpret_cast<uint32_t*>(to.data)}));
    rates.bandwidth = 2.0 * static_cast<double>(kCopied) * kRepetitions / seconds_of_launches(device, copies);
  }
  if (device.facts().major == 9) {
    using enum PeakNumbers;
    // Pairs of bf16 numbers of magnitudes 0.5 to 1; four of E4M3 of 1 to 2; four odd integers.
    rates.multiply_adds = multiply_rate<MultiplyPeak<kBf16>>(device, from.data, to.data, 0x807F807F, 0x3F003F00);
    rates.fp8_multiply_adds = multiply_rate<MultiplyPeak<kE4M3>>(device, from.data, to.data, 0x87878787, 0x38383838);
    rates.int8_multiply_adds = multiply_rate<MultiplyPeak<kInt8>>(device, from.data, to.data, 0xFEFEFEFE, 0x01010101);
  }
  return rates;
}

}  // namespace quire::cuda
