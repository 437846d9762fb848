// The kernels for AMX (int8 and bf16 tiles) with AVX-512. Compiled for AVX-512; NativeTiles has the tile instructions.

#define QUIRE_ISA amx

#include "kernels/rope_store.inc.h"
#include "kernels/x86/amx_attention.inc.h"
#include "kernels/x86/amx_linear.inc.h"

namespace quire {

const KernelSet* amx_kernels() {
  static constexpr KernelSet set{.name = "amx",
                                 .quantize = amx::tile_quantize,
                                 .linear = amx::tile_linear<NativeTiles>,
                                 .rope_store = amx::rope_store,
                                 .attention = amx::tile_attention<NativeTiles>,
                                 .merge = amx::merge,
                                 .peak = amx::tile_peak<NativeTiles>,
                                 .linear_panels = amx::kFloatPanels,
                                 .linear_rows = amx::kMostRows,
                                 .default_activations = Activations::kBf16};
  return &set;
}

}  // namespace quire
