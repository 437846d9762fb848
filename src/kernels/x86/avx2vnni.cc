// The kernels for AVX2 with AVX-VNNI, FMA and F16C: those of AVX2, except for products of int8 inputs. The only code
// compiled for AVX-VNNI (CMakeLists.txt).

#define QUIRE_ISA avx2vnni

#include "kernels/vector/linear.inc.h"
#include "kernels/vector/peak.inc.h"

namespace quire {
namespace QUIRE_ISA {
namespace {

void int8_linear(const LinearArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  const auto of_set = includes(Products::kInt8, a.activations) ? linear<Products::kInt8> : avx2_kernels()->linear;
  of_set(a, panel_begin, panel_end, row_begin, row_end);
}

}  // namespace
}  // namespace QUIRE_ISA

const KernelSet* avx2vnni_kernels() {
  static const KernelSet set = [] {
    KernelSet kernels = *avx2_kernels();
    kernels.name = "avx2vnni";
    kernels.linear = avx2vnni::int8_linear;
    kernels.linear_loops = avx2vnni::linear_loops;
    kernels.peak = avx2vnni::peak;
    return kernels;
  }();
  return &set;
}

}  // namespace quire
