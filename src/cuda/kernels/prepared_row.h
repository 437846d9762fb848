// Parts of kernels that prepare inputs (cuda/linear/inputs.h): sums over a block's threads, and the layout of a prepared row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/unroll.h"
#include "kernels/packed.h"

namespace quire::cuda {

// Of shared memory, from its beginning, for what all threads of a block find together: two for each warp.
inline constexpr int kReducedFloats = 64;

// The sum over all threads of a block of whole warps. The order of additions is fixed by the number of threads.
DEVICE float sum_over_block(float v) {
  UNROLL
  for (int mask = 16; mask > 0; mask /= 2) v += shuffle_xor(v, mask);
  const auto sums = shared<float>(0);
  sync_block();  // nobody reads what is there any more
  if (lane() == 0) sums[warp()] = v;
  sync_block();
  float sum = lane() < threads() / 32 ? float(sums[lane()]) : 0.0f;
  UNROLL
  for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  return sum;
}

// Writes inputs 8 * eight .. 8 * eight + 7 of a row and, with the neighbouring lane, the sum of sixteen. All lanes of a warp call
// it, with consecutive eights, the first a multiple of 32; those beyond the row's blocks write nothing.
template <int kTerms>
DEVICE void write_eight(const float (&inputs)[8], int eight, int blocks, Global<uint8_t> to) {
  float terms[kTerms][8], sums[2] = {};
  UNROLL
  for (int k = 0; k < 8; ++k) {
    float added = inputs[k];
    if constexpr (kTerms == 1) {
      terms[0][k] = inputs[k];
      added = low_bf16(pack_bf16(inputs[k], 0.0f));
    } else {
      const Bf16Terms all = bf16_terms(inputs[k]);
      UNROLL
      for (int t = 0; t < kTerms; ++t) terms[t][k] = all.term[t];
    }
    sums[k % 2] += added;
  }
  const float sum = sums[0] + sums[1], sixteen = sum + shuffle_xor(sum, 1);
  if (eight >= 4 * blocks) return;
  constexpr int kBlockBytes = 2 * kBlockInputs;
  const int block = eight / 4, i = eight % 4;
  UNROLL
  for (int t = 0; t < kTerms; ++t) {
    UNROLL
    for (int j = 0; j < 4; ++j) {
      const int at = (t * blocks + block) * kBlockBytes + 16 * j + 4 * i;
      store(to + at, Words<1>{{pack_bf16(terms[t][2 * j], terms[t][2 * j + 1])}});
    }
  }
  if (i % 2 == 0) {
    const int at = kTerms * blocks * kBlockBytes + 8 * block + 2 * i;
    store(to + at, Words<1>{{float_bits(sixteen)}});
  }
}

}  // namespace quire::cuda
