// The kernels for AVX2 with FMA and F16C, the only code compiled for it (CMakeLists.txt).

#define QUIRE_ISA avx2

#include "kernels/vector/kernel_set.inc.h"

namespace quire {

const KernelSet* avx2_kernels() {
  static constexpr KernelSet set = avx2::vector_kernels("avx2");
  return &set;
}

}  // namespace quire
