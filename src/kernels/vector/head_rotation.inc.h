// rotate_head_plainly() over the alphabet.
#pragma once

#include "kernels/head_rotation.h"
#include "kernels/kernels.h"
#include "kernels/vector/alphabet.h"

namespace quire::QUIRE_ISA {
namespace {

// Pairs of lanes at a distance: the lower gets the sum, the upper the lower less the upper.
template <int kDistance>
QUIRE_INLINE Floats16 add_pairs(Floats16 x) {
  alignas(64) static constexpr auto kSigns = [] {
    Lanes signs{};
    for (size_t i = 0; i < kLanes; ++i) signs[i] = i & kDistance ? -1.0f : 1.0f;
    return signs;
  }();
  return fma(x, Floats16::load(kSigns.data()), exchange_lanes<kDistance>(x));
}

// x: room for padded_head(dim) numbers. Those after `dim` are overwritten.
[[gnu::noinline]] void rotate_head(float* x, int dim) {
  const int block = rotated_block(dim), padded = padded_head(dim);
  if (block == 1) return;
  const Floats16 scale = Floats16::all(rotation_scale(block));
  for (int i = 0; i < padded; i += kLanes) {
    Floats16 lanes = add_pairs<1>(mul(Floats16::load(x + i), scale));
    if (block > 2) lanes = add_pairs<2>(lanes);
    if (block > 4) lanes = add_pairs<4>(lanes);
    if (block > 8) lanes = add_pairs<8>(lanes);
    store(x + i, lanes);
  }
  for (int distance = kLanes; distance < block; distance *= 2) {
    for (int begin = 0; begin < dim; begin += 2 * distance) {
      for (int i = begin; i < begin + distance; i += kLanes) {
        const Floats16 a = Floats16::load(x + i), b = Floats16::load(x + i + distance);
        store(x + i, add(a, b));
        store(x + i + distance, sub(a, b));
      }
    }
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
