// The kernels for AMX (int8 and bf16 tiles): those of AVX-512, except for what tiles do. Compiled for AVX-512; the tile
// instructions are assembly (tiles.h).

#define QUIRE_ISA amx

#include "kernels/x86/amx_attention.inc.h"
#include "kernels/x86/amx_linear.inc.h"

namespace quire {
namespace QUIRE_ISA {
namespace {

KernelSet tile_kernels() {
  KernelSet kernels = *avx512_kernels();
  kernels.name = "amx";
  kernels.quantize = tile_quantize;
  kernels.linear = tile_linear;
  kernels.linear_loops = tile_loops;
  kernels.attention = tile_attention;
  kernels.peak = tile_peak;
  kernels.linear_rows = kMostRows;
  kernels.shared_input_rows = kRowGroup;
  kernels.default_activations = Activations::kBf16;
  return kernels;
}

}  // namespace
}  // namespace QUIRE_ISA

const KernelSet* amx_kernels() {
  static const KernelSet set = amx::tile_kernels();
  return &set;
}

}  // namespace quire
