// The limit that benchmarks are reported beside.

#include <utility>

#include "kernels/kernels.h"
#include "kernels/x86/linear_float.inc.h"

namespace quire {
namespace {

// Twelve independent chains hide the latency of the multiplications on two ports. Unrolled by hand: what the compiler
// leaves in a loop it keeps in memory.
template <size_t... kChain>
double peak_of(std::index_sequence<kChain...>, Activations activations, int64_t rounds) {
  // The compiler must neither see that all chains compute the same nor drop what nobody reads.
  const auto opaque = [](auto& a) __attribute__((always_inline)) { asm volatile("" : "+x"(a.v)); };
  constexpr int64_t kChains = sizeof...(kChain);
  if (activations == Activations::kInt8) {
    Sums sums[kChains] = {(static_cast<void>(kChain), no_sums())...};
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
}  // namespace quire
