// The kernels for AVX2 with FMA and F16C: compiled for it alone (CMakeLists.txt).

#include "kernels/rope_store.inc.h"
#include "kernels/x86/attention.inc.h"
#include "kernels/x86/linear.inc.h"
#include "kernels/x86/peak.inc.h"
#include "kernels/x86/rows.inc.h"

namespace quire {

const KernelSet* avx2_kernels() {
  static constexpr KernelSet set{"avx2", quantize, linear, rope_store, attention, merge, peak};
  return &set;
}

}  // namespace quire
