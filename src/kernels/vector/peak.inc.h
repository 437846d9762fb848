// The rate of multiplications on registers: the limit that benchmarks compare with.
#pragma once

#include <utility>

#include "kernels/kernels.h"
#include "kernels/vector/linear_float.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// Twelve independent chains hide the latency (4 to 5 cycles) of multiplications on two ports. Unrolled by hand, because
// the compiler keeps arrays that a loop indexes in memory.
template <size_t... kChain>
double peak_of(std::index_sequence<kChain...>, Activations activations, int64_t rounds) {
  // Hides from the compiler that all chains are equal and that nothing reads their results.
  const auto opaque = [](auto& a) __attribute__((always_inline)) { asm volatile("" : "+x"(a.v)); };
  constexpr int64_t kChains = sizeof...(kChain);
  if (activations == Activations::kInt8) {
    Sums sums[kChains] = {(static_cast<void>(kChain), sums_from(Ints::all(0)))...};
    Ints w = Ints::all(0x01010101), x = w;
    for (int64_t i = 0; i < rounds; ++i) ((opaque(x), multiply<4>(sums[kChain], w, x)), ...);
    (widen<4>(sums[kChain]), ...);
    (opaque(sums[kChain].wide), ...);
    return static_cast<double>(rounds * kChains * kWidth * 4);
  }
  const auto run = [&]<class Steps>(Steps) {
    Floats sums[kChains] = {(static_cast<void>(kChain), Floats::all(0.0f))...}, w = Floats::all(1.0f);
    auto x = Steps::input(FloatBlock{}, 0);
    for (int64_t i = 0; i < rounds; ++i) ((opaque(x), sums[kChain] = Steps::multiply(x, w, sums[kChain])), ...);
    (opaque(sums[kChain]), ...);
    return static_cast<double>(rounds * kChains * kWidth * (8 / Steps::kLine));
  };
  return activations == Activations::kBf16 ? run(Pairs{}) : run(Singles{});
}
double peak(Activations activations, int64_t rounds) {
  return peak_of(std::make_index_sequence<12>{}, activations, rounds);
}

}  // namespace
}  // namespace quire::QUIRE_ISA
