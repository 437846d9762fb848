// The kernel set "amx" with its tiles emulated: the same source, on any machine with AVX-512.

#include "unit/kernels/emulated_amx.h"

#define QUIRE_ISA emulated_amx

#include "kernels/x86/amx_kernel_set.inc.h"
#include "unit/kernels/emulated_tiles.h"

namespace quire::testing {

const KernelSet& emulated_amx_kernels() {
  static const KernelSet set = emulated_amx::tile_kernels<EmulatedTiles>("emulated_amx");
  return set;
}

}  // namespace quire::testing
