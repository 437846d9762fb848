// The kernels for AMX (int8 and bf16 tiles) with AVX-512: compiled for AVX-512 alone (CMakeLists.txt); the tile
// instructions are those of NativeTiles.

#include "kernels/rope_store.inc.h"
#include "kernels/x86/amx_attention.inc.h"
#include "kernels/x86/amx_linear.inc.h"

namespace quire {

const KernelSet* amx_kernels() {
  static constexpr KernelSet set{"amx",
                                 tile_quantize,
                                 tile_linear<NativeTiles>,
                                 rope_store,
                                 tile_attention<NativeTiles>,
                                 merge,
                                 tile_peak<NativeTiles>,
                                 kFloatPanels,
                                 kMostRows};
  return &set;
}

}  // namespace quire
