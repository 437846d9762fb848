// The kernels for AVX-512 (F, BW, VL, DQ, VNNI), the only code compiled for it (CMakeLists.txt).

#define QUIRE_ISA avx512

#include "kernels/vector/kernel_set.inc.h"

namespace quire {

const KernelSet* avx512_kernels() {
  static constexpr KernelSet set = avx512::vector_kernels("avx512");
  return &set;
}

}  // namespace quire
