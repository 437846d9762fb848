// The kernels for AVX2 with AVX-VNNI, FMA and F16C: compiled for it alone (CMakeLists.txt).

#include "kernels/rope_store.inc.h"
#include "kernels/x86/attention.inc.h"
#include "kernels/x86/linear.inc.h"
#include "kernels/x86/peak.inc.h"
#include "kernels/x86/rows.inc.h"

namespace quire {

const KernelSet* avx2vnni_kernels() {
  static constexpr KernelSet set{"avx2vnni", quantize, linear, rope_store, attention, merge, peak};
  return &set;
}

}  // namespace quire
