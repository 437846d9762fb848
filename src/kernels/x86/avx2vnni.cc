// The kernels for AVX2 with AVX-VNNI, FMA and F16C. The only code compiled for AVX-VNNI (CMakeLists.txt).

#define QUIRE_ISA avx2vnni

#include "kernels/x86/avx2vnni_kernel_set.inc.h"

namespace quire {

const KernelSet* avx2vnni_kernels() {
  static const KernelSet set = avx2vnni::vnni_kernels("avx2vnni");
  return &set;
}

}  // namespace quire
