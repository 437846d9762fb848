// The kernels of a set with matrix tiles, over the policy `Tiles` (x86/tiles.h).
#pragma once

#include "kernels/x86/amx_attention.inc.h"
#include "kernels/x86/amx_linear.inc.h"

namespace quire::QUIRE_ISA {
namespace {

template <class Tiles>
KernelSet tile_kernels(std::string_view name) {
  KernelSet kernels = *avx512_kernels();
  kernels.name = name;
  kernels.quantize = tile_quantize;
  kernels.linear = tile_linear<Tiles>;
  kernels.linear_loops = tile_loops;
  kernels.attention = tile_attention<Tiles>;
  kernels.peak = tile_peak<Tiles>;
  kernels.linear_rows = kMostRows;
  kernels.shared_input_rows = kRowGroup;
  kernels.default_activations = Activations::kBf16;
  return kernels;
}

}  // namespace
}  // namespace quire::QUIRE_ISA
