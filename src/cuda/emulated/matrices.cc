#include "cuda/emulated/matrices.h"

#include <cassert>
#include <cstddef>
#include <cstring>

namespace quire::cuda::emulated {

void multiply_row(std::span<const float> a, std::span<const float> b, std::span<float> d) {
  const size_t columns = d.size();
  assert(columns % 8 == 0 && b.size() == a.size() * columns);
  for (size_t first = 0; first < columns; first += 8) {
    double sums[8];
    for (size_t j = 0; j < 8; ++j) sums[j] = d[first + j];
    for (size_t k = 0; k < a.size(); ++k) {
      const double x = a[k];
      const float* row = &b[k * columns + first];
      for (size_t j = 0; j < 8; ++j) sums[j] += x * row[j];
    }
    for (size_t j = 0; j < 8; ++j) d[first + j] = static_cast<float>(sums[j]);
  }
}

std::array<float, 256> rows_of(const LaneWords4& a, float (*low)(uint32_t), float (*high)(uint32_t)) {
  std::array<float, 256> rows;
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t g = lane / 4, i = lane % 4;
    for (size_t w = 0; w < 4; ++w) {
      float* at = &rows[(g + w % 2 * 8) * 16 + w / 2 * 8 + 2 * i];
      at[0] = low(a[lane][w]);
      at[1] = high(a[lane][w]);
    }
  }
  return rows;
}

std::array<std::array<uint8_t, 32>, 16> byte_rows_of(const LaneWords4& a) {
  std::array<std::array<uint8_t, 32>, 16> rows;
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t g = lane / 4, i = lane % 4;
    for (size_t w = 0; w < 4; ++w) std::memcpy(&rows[g + w % 2 * 8][w / 2 * 16 + 4 * i], &a[lane][w], 4);
  }
  return rows;
}

}  // namespace quire::cuda::emulated
