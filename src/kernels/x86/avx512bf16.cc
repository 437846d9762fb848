// The kernels for AVX-512 with VDPBF16PS, the only code compiled for it (CMakeLists.txt): those of AVX-512, except for linears
// with bf16 inputs and attention over a bf16 or int8 cache, which run at twice the rate of FMAs.

#define QUIRE_ISA avx512bf16

#include "kernels/vector/linear.inc.h"
#include "kernels/vector/peak.inc.h"
#include "kernels/vector/quantize.inc.h"
#include "kernels/x86/avx512bf16_attention.inc.h"

namespace quire {
namespace QUIRE_ISA {
namespace {

QUIRE_INLINE void write_pairs(Floats16 x0, Floats16 x1, PairBlock& out) {
  const Floats16 halves[2] = {to_bf16(x0), to_bf16(x1)};
  _mm512_storeu_si512(out.pairs, links(halves[0], halves[1]).v);
  alignas(64) float rounded[kBlockInputs];
  store(rounded, halves[0]), store(rounded + kLanes, halves[1]);
  write_sums(rounded, out.sum, out.half_sums);
}

void quantize_pairs(const QuantizeArgs& a, int row_begin, int row_end) {
  if (a.to != Activations::kBf16) return avx512_kernels()->quantize(a, row_begin, row_end);
  for (int row = row_begin; row < row_end; ++row) {
    auto* out = reinterpret_cast<PairBlock*>(a.out + static_cast<size_t>(row) * a.out_stride);
    RowInputs(a, row).for_each_block([&](int b, Floats16 x0, Floats16 x1)
                                         __attribute__((always_inline)) { write_pairs(x0, x1, out[b]); });
  }
}

void bf16_linear(const LinearArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  const auto of_set = includes(Products::kBf16, a.activations) ? linear<Products::kBf16> : avx512_kernels()->linear;
  of_set(a, panel_begin, panel_end, row_begin, row_end);
}

}  // namespace
}  // namespace QUIRE_ISA

const KernelSet* avx512bf16_kernels() {
  static const KernelSet set = [] {
    KernelSet kernels = *avx512_kernels();
    kernels.name = "avx512bf16";
    kernels.quantize = avx512bf16::quantize_pairs;
    kernels.linear = avx512bf16::bf16_linear;
    kernels.linear_loops = avx512bf16::linear_loops;
    kernels.attention = avx512bf16::pair_attention;
    kernels.peak = avx512bf16::peak;
    return kernels;
  }();
  return &set;
}

}  // namespace quire
