// The kernel set "amx" with its tiles emulated: the same source, on any machine with AVX-512.

#include "unit/kernels/emulated_amx.h"

#define QUIRE_ISA emulated_amx

#include "kernels/rope_store.inc.h"
#include "kernels/x86/amx_attention.inc.h"
#include "kernels/x86/amx_linear.inc.h"
#include "unit/kernels/emulated_tiles.h"

namespace quire::testing {

const KernelSet& emulated_amx_kernels() {
  static constexpr KernelSet set{.name = "emulated_amx",
                                 .quantize = emulated_amx::tile_quantize,
                                 .linear = emulated_amx::tile_linear<EmulatedTiles>,
                                 .rope_store = emulated_amx::rope_store,
                                 .attention = emulated_amx::tile_attention<EmulatedTiles>,
                                 .merge = emulated_amx::merge,
                                 .peak = emulated_amx::tile_peak<EmulatedTiles>,
                                 .linear_panels = emulated_amx::kFloatPanels,
                                 .linear_rows = emulated_amx::kMostRows,
                                 .default_activations = Activations::kBf16};
  return set;
}

}  // namespace quire::testing
