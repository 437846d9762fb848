// The kernels for AVX2 with FMA and F16C, the only code compiled for it (CMakeLists.txt).

#define QUIRE_ISA avx2

#include "kernels/rope_store.inc.h"
#include "kernels/x86/attention.inc.h"
#include "kernels/x86/linear.inc.h"
#include "kernels/x86/peak.inc.h"
#include "kernels/x86/rows.inc.h"

namespace quire {

const KernelSet* avx2_kernels() {
  static constexpr KernelSet set{.name = "avx2",
                                 .quantize = avx2::quantize,
                                 .linear = avx2::linear,
                                 .rope_store = avx2::rope_store,
                                 .attention = avx2::attention,
                                 .merge = avx2::merge,
                                 .peak = avx2::peak};
  return &set;
}

}  // namespace quire
