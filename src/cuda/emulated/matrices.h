// Products of matrices in the registers of a warp, in the layouts of PTX (alphabet/alphabet.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace quire::cuda::emulated {

// A row of numbers times columns of b [k][columns]: d[j] += sum over k of a[k] * b[k * columns + j]. Products of bf16, float16 and
// E4M3 are exact in double; they are added to d in double, in the order of k, and the sum is rounded to float32 once.
void multiply_row(std::span<const float> a, std::span<const float> b, std::span<float> d);

// Words of the lanes -> a [16][16] of numbers.
using LaneWords4 = std::array<std::array<uint32_t, 4>, 32>;
std::array<float, 256> rows_of(const LaneWords4& a, float (*low)(uint32_t), float (*high)(uint32_t));
// Likewise a [16][32] of bytes.
std::array<std::array<uint8_t, 32>, 16> byte_rows_of(const LaneWords4& a);

}  // namespace quire::cuda::emulated
