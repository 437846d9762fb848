// The kernels for AVX-512 (F, BW, VL, DQ, VNNI): compiled for it alone (CMakeLists.txt).

#include "kernels/rope_store.inc.h"
#include "kernels/x86/attention.inc.h"
#include "kernels/x86/linear.inc.h"
#include "kernels/x86/peak.inc.h"
#include "kernels/x86/rows.inc.h"

namespace quire {

const KernelSet* avx512_kernels() {
  static constexpr KernelSet set{"avx512", quantize, linear, rope_store, attention, merge, peak, kFloatPanels};
  return &set;
}

}  // namespace quire
