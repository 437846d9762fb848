// Loops over rows of floats, four elements at a time, which every x86-64 and ARM supports. Written out because
// compilers, left to themselves, branch where these loops select.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace quire {

using Floats [[gnu::vector_size(16)]] = float;
using Bits [[gnu::vector_size(16)]] = uint32_t;

inline Floats all_lanes(float x) { return Floats{x, x, x, x}; }

// Four elements; or `count`, padded with zeros.
inline Floats load(const float* from, size_t count = 4) {
  Floats x{};
  std::memcpy(&x, from, count * sizeof(float));
  return x;
}
inline void store(Floats x, float* to, size_t count = 4) { std::memcpy(to, &x, count * sizeof(float)); }

// Calls f(i, count) for elements [i, i + count) of `size`. count is a compile-time 4, except in the last call.
template <class F>
void for_each_four(size_t size, F f) {
  size_t i = 0;
  for (; i + 4 <= size; i += 4) f(i, std::integral_constant<size_t, 4>());
  if (i < size) f(i, size - i);
}

}  // namespace quire
