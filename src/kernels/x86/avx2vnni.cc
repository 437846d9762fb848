// The kernels for AVX2 with AVX-VNNI, FMA and F16C, the only code compiled for it (CMakeLists.txt).

#define QUIRE_ISA avx2vnni

#include "kernels/rope_store.inc.h"
#include "kernels/x86/attention.inc.h"
#include "kernels/x86/linear.inc.h"
#include "kernels/x86/peak.inc.h"
#include "kernels/x86/rows.inc.h"

namespace quire {

const KernelSet* avx2vnni_kernels() {
  static constexpr KernelSet set{.name = "avx2vnni",
                                 .quantize = avx2vnni::quantize,
                                 .linear = avx2vnni::linear,
                                 .rope_store = avx2vnni::rope_store,
                                 .attention = avx2vnni::attention,
                                 .merge = avx2vnni::merge,
                                 .peak = avx2vnni::peak};
  return &set;
}

}  // namespace quire
