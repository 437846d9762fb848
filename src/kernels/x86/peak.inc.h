// The limit that benchmarks are reported beside.

#include "kernels/kernels.h"
#include "kernels/x86/register.h"

namespace quire {
namespace {

// Twelve independent chains hide the latency of the multiplications on two ports.
double peak(Activations activations, int64_t rounds) {
  constexpr int kChains = 12;
  // The compiler must neither fold what it knows nor keep the chains anywhere but in registers.
  const auto opaque = [](auto& a) __attribute__((always_inline)) { asm volatile("" : "+v"(a.v)); };
  if (activations == Activations::kInt8) {
    Sums sums[kChains];
    for (Sums& s : sums) s = no_sums();
    Ints w = Ints::all(0x01010101), x = w;
    for (int64_t i = 0; i < rounds; ++i) {
      for (Sums& s : sums) multiply<4>(s, w, x);
      opaque(w), opaque(x);
    }
    for (Sums& s : sums) widen<4>(s), opaque(s.wide);
    return static_cast<double>(rounds) * kChains * kWidth * 4;
  }
  Floats sums[kChains], w = Floats::all(1.0f), x = w;
  for (Floats& sum : sums) sum = Floats::all(0.0f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (Floats& sum : sums) sum = fma(x, w, sum);
    opaque(w), opaque(x);
  }
  for (Floats& sum : sums) opaque(sum);
  return static_cast<double>(rounds) * kChains * kWidth;
}

}  // namespace
}  // namespace quire
