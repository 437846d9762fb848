// The kernels for AMX (int8 and bf16 tiles): those of AVX-512, except for what tiles do. Compiled for AVX-512; NativeTiles has
// the tile instructions.

#define QUIRE_ISA amx

#include "kernels/x86/amx_kernel_set.inc.h"

namespace quire {

const KernelSet* amx_kernels() {
  static const KernelSet set = amx::tile_kernels<NativeTiles>("amx");
  return &set;
}

}  // namespace quire
