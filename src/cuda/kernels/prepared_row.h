// Parts of kernels that prepare inputs (cuda/linear/inputs.h): sums over a block's threads, and the layout of a prepared row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/warp_sums.h"
#include "kernels/packed.h"

namespace quire::cuda {

// Of shared memory, from its beginning, for what all threads of a block find together: two for each warp.
inline constexpr int kReducedFloats = 64;

// The sum over all threads of a block of whole warps. The order of additions is fixed by the number of threads.
DEVICE float sum_over_block(float v) {
  v = sum_of_warp(v);
  const auto sums = shared<float>(0);
  sync_block();  // nobody reads what is there any more
  if (lane() == 0) sums[warp()] = v;
  sync_block();
  return sum_of_warp(lane() < threads() / 32 ? float(sums[lane()]) : 0.0f);
}

// Eight inputs as products read them. Words j are inputs 2 j and 2 j + 1.
template <int kTerms>
struct RoundedEight {
  uint32_t words[kTerms][4];
  float sixteen;  // the sum of these and of the neighbouring lane's
};
// All lanes of a warp call it; lane 2 m and the next one have neighbouring inputs.
template <int kTerms>
DEVICE RoundedEight<kTerms> round_eight(const float (&inputs)[8]) {
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
  const float sum = sums[0] + sums[1];
  RoundedEight<kTerms> rounded;
  rounded.sixteen = sum + shuffle_xor(sum, 1);
  UNROLL
  for (int t = 0; t < kTerms; ++t) {
    UNROLL
    for (int j = 0; j < 4; ++j) rounded.words[t][j] = pack_bf16(terms[t][2 * j], terms[t][2 * j + 1]);
  }
  return rounded;
}
// Where word j of number `eight` of a row lies, in bytes from its term's first block on.
DEVICE int word_at(int eight, int j) { return eight / 4 * (2 * kBlockInputs) + 16 * j + 4 * (eight % 4); }

// Writes inputs 8 * eight .. 8 * eight + 7 of a row and, with the neighbouring lane, the sum of sixteen. All lanes of a warp call
// it, with consecutive eights, the first a multiple of 32; those beyond the row's blocks write nothing.
template <int kTerms>
DEVICE void write_eight(const float (&inputs)[8], int eight, int blocks, Global<uint8_t> to) {
  const RoundedEight<kTerms> rounded = round_eight<kTerms>(inputs);
  if (eight >= 4 * blocks) return;
  constexpr int kBlockBytes = 2 * kBlockInputs;
  UNROLL
  for (int t = 0; t < kTerms; ++t) {
    UNROLL
    for (int j = 0; j < 4; ++j)
      store(to + (t * blocks * kBlockBytes + word_at(eight, j)), Words<1>{{rounded.words[t][j]}});
  }
  if (eight % 2 == 0)
    store(to + (kTerms * blocks * kBlockBytes + 4 * (eight / 2)), Words<1>{{float_bits(rounded.sixteen)}});
}

}  // namespace quire::cuda
