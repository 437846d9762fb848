// The kernels for AVX-512 (F, BW, VL, DQ, VNNI), the only code compiled for it (CMakeLists.txt).

#define QUIRE_ISA avx512

#include "kernels/rope_store.inc.h"
#include "kernels/x86/attention.inc.h"
#include "kernels/x86/linear.inc.h"
#include "kernels/x86/peak.inc.h"
#include "kernels/x86/rows.inc.h"

namespace quire {

const KernelSet* avx512_kernels() {
  static constexpr KernelSet set{.name = "avx512",
                                 .quantize = avx512::quantize,
                                 .linear = avx512::linear,
                                 .rope_store = avx512::rope_store,
                                 .attention = avx512::attention,
                                 .merge = avx512::merge,
                                 .peak = avx512::peak,
                                 .linear_panels = avx512::kFloatPanels};
  return &set;
}

}  // namespace quire
