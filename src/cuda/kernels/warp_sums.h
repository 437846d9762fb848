// Sums over the lanes of a warp.
#pragma once

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// All lanes call it, and get the sum of all lanes' numbers, added as a tree.
DEVICE float sum_of_warp(float v) {
  UNROLL
  for (int mask = 16; mask > 0; mask /= 2) v += shuffle_xor(v, mask);
  return v;
}

}  // namespace quire::cuda
