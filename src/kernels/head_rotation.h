// The rotation of heads for caches of few bits: blocks of numbers times a normalized Hadamard matrix.
//
// A number that is much larger than the others of its head would make their codes coarse. After the rotation, each number
// is a sum of all of its block with signs, so all have about the same size (QuaRot: arXiv 2404.00456). The matrix is
// Sylvester's, with columns of random signs: without them, the first number would be the sum of the block, which is large
// where most numbers have one sign. It is orthogonal, so products of two rotated heads are those of the heads.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "kernels/types.h"

namespace quire {

// The numbers that are rotated together: the largest power of two that divides the size of a head.
constexpr int rotated_block(int dim) { return dim & -dim; }
// 1 / sqrt(block), rounded.
constexpr float rotation_scale(int block) {
  const int exponent = std::countr_zero(static_cast<unsigned>(block));
  const float whole = 1.0f / static_cast<float>(1u << exponent / 2);
  return exponent % 2 == 0 ? whole : whole * 0.70710678f;
}

// 1 or -1 for each element of a head, at random. Not inline: each instruction set has its own copy.
constexpr auto kRotationSigns = [] {
  std::array<float, kMaxHeadDim> signs{};
  uint32_t i = 0;
  for (float& sign : signs) sign = ++i * 2654435761u >> 31 ? -1.0f : 1.0f;  // Knuth's multiplicative hash
  return signs;
}();

// rotate_head(x, dim) rotates x [dim], block by block, and rotate_head_back(x, dim) undoes that:
//
//   rotate_head:       x[i] = x[i] * (kRotationSigns[i] * rotation_scale(block))
//   both:              for distances 1, 2, 4, ... block / 2, all pairs (a, b) at this distance:  a, b = a + b, a - b
//   rotate_head_back:  x[i] = x[i] * (kRotationSigns[i] * rotation_scale(block))
//
// Blocks of one number stay as they are. The reference has both in plain code (reference_attention.cc), the other sets over
// vectors (vector/head_rotation.inc.h).

}  // namespace quire
