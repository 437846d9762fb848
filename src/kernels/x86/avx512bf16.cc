// The kernels for AVX-512 with VDPBF16PS: compiled for it alone (CMakeLists.txt). Linears with bf16 inputs run at twice
// the rate of FMAs, and so does attention over a bf16 cache.

#include "kernels/rope_store.inc.h"
#include "kernels/x86/avx512bf16_attention.inc.h"
#include "kernels/x86/linear.inc.h"
#include "kernels/x86/peak.inc.h"
#include "kernels/x86/rows.inc.h"

namespace quire {
namespace {

QUIRE_INLINE void write_pairs(F x0, F x1, PairBlock& out) {
  const F halves[2] = {to_bf16(x0), to_bf16(x1)};
  _mm512_storeu_si512(out.pairs, links(halves[0], halves[1]).v);
  alignas(64) float rounded[kBlock];
  store(rounded, halves[0]), store(rounded + kLanes, halves[1]);
  out.sum = sum_even_odd(rounded);
}

void quantize_pairs(const QuantizeArgs& a, int row_begin, int row_end) {
  if (a.to != Activations::kBf16) return quantize(a, row_begin, row_end);
  for (int row = row_begin; row < row_end; ++row) {
    auto* out = reinterpret_cast<PairBlock*>(a.out + static_cast<size_t>(row) * a.out_stride);
    for_each_block(
        a, row, [&](int b, F x0, F x1) __attribute__((always_inline)) { write_pairs(x0, x1, out[b]); });
  }
}

}  // namespace

const KernelSet* avx512bf16_kernels() {
  static constexpr KernelSet set{"avx512bf16",   quantize_pairs, linear, rope_store,
                                 pair_attention, merge,          peak,   kFloatPanels};
  return &set;
}

}  // namespace quire
