// Four neighbouring numbers of a row at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// A bool of a kernel. Launches are compared byte for byte, so kernels must have no padding, whose bytes are whatever the stack
// held; members named `unused` fill it.
using Flag = int32_t;

// Rows of numbers in memory of the device.
template <class T>
struct RowsAt {
  Global<T> data;
  size_t stride;  // numbers from row to row

  DEVICE Global<T> row(int r) const { return data + static_cast<size_t>(r) * stride; }
};

struct Four {
  float v[4];
};

// The first `count` numbers at p, then zeros; count may be 0 or less, or more than 4. aligned: p is at a multiple of 16
// bytes.
template <class T>
DEVICE Four load_four(Global<T> p, int count, bool aligned) {
  Four four{};
  if (aligned && count >= 4) {
    const Words<4> words = load<4>(p);
    UNROLL
    for (int i = 0; i < 4; ++i) four.v[i] = bits_float(words.w[i]);
    return four;
  }
  UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i < count) four.v[i] = p[i];
  }
  return four;
}

// The first `count` of them to p.
DEVICE void store_four(Global<float> p, const Four& four, int count, bool aligned) {
  if (aligned && count >= 4) {
    Words<4> words;
    UNROLL
    for (int i = 0; i < 4; ++i) words.w[i] = float_bits(four.v[i]);
    store(p, words);
    return;
  }
  UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i < count) p[i] = four.v[i];
  }
}

}  // namespace quire::cuda
