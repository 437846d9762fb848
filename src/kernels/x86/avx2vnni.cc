// The kernels for AVX2 with AVX-VNNI, FMA and F16C, the only code compiled for it (CMakeLists.txt).

#define QUIRE_ISA avx2vnni

#include "kernels/x86/kernel_set.inc.h"

namespace quire {

const KernelSet* avx2vnni_kernels() {
  static constexpr KernelSet set = avx2vnni::vector_kernels("avx2vnni");
  return &set;
}

}  // namespace quire
