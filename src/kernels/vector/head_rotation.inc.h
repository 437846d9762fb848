// The rotation of heads (kernels/head_rotation.h) over the alphabet.
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

// Both take the room of padded_head(dim) numbers at x, and overwrite those after `dim`.
template <bool kBack>
QUIRE_INLINE void rotate_blocks(float* x, int dim) {
  const int block = rotated_block(dim), padded = padded_head(dim);
  if (block == 1) return;
  const auto scaled = [scale = Floats16::all(rotation_scale(block))](Floats16 lanes, int i)
      __attribute__((always_inline)) {
    return mul(lanes, mul(Floats16::load(kRotationSigns.data() + i), scale));
  };
  for (int i = 0; i < padded; i += kLanes) {
    Floats16 lanes = Floats16::load(x + i);
    if (!kBack) lanes = scaled(lanes, i);
    lanes = add_pairs<1>(lanes);
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
  for (int i = 0; kBack && i < padded; i += kLanes) store(x + i, scaled(Floats16::load(x + i), i));
}
[[gnu::noinline]] void rotate_head(float* x, int dim) { rotate_blocks<false>(x, dim); }
[[gnu::noinline]] void rotate_head_back(float* x, int dim) { rotate_blocks<true>(x, dim); }

}  // namespace
}  // namespace quire::QUIRE_ISA
