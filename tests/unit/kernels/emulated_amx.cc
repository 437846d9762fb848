// The kernel set "amx" with its tiles emulated: the same source, on any machine with AVX-512.

#include "unit/kernels/emulated_amx.h"

#include "kernels/rope_store.inc.h"
#include "kernels/x86/amx_attention.inc.h"
#include "kernels/x86/amx_linear.inc.h"
#include "unit/kernels/emulated_tiles.h"

namespace quire::testing {

const KernelSet& emulated_amx_kernels() {
  static constexpr KernelSet set{"emulated_amx",
                                 tile_quantize,
                                 tile_linear<EmulatedTiles>,
                                 rope_store,
                                 tile_attention<EmulatedTiles>,
                                 merge,
                                 tile_peak<EmulatedTiles>,
                                 kFloatPanels,
                                 kMostRows};
  return set;
}

}  // namespace quire::testing
