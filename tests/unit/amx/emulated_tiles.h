// kernels/x86/tiles.h in plain C++, following Intel's manual to the letter: what the instructions are compared with. Checks that every operand has the shape that the instruction requires.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/half.h"
#include "kernels/denormals.h"
#include "kernels/x86/tiles.h"

namespace quire {
namespace {

class EmulatedTiles {
 public:
  explicit EmulatedTiles(TileShape shape) : shape_(shape) {
    demand(shape.rows >= 1 && shape.rows <= 16 && shape.depth >= 4 && shape.depth <= 64 && shape.depth % 4 == 0);
  }

  template <int kTile>
  void zero() {
    std::memset(tiles_[kTile], 0, sizeof tiles_[kTile]);
  }
  template <int kTile>
  void load(const void* p, size_t stride) {
    zero<kTile>();  // rows and columns beyond the shape
    for (int r = 0; r < rows(kTile); ++r)
      std::memcpy(tiles_[kTile][r], static_cast<const char*>(p) + static_cast<size_t>(r) * stride, bytes(kTile));
  }
  template <int kTile>
  void store(void* p, size_t stride) {
    for (int r = 0; r < rows(kTile); ++r)
      std::memcpy(static_cast<char*>(p) + static_cast<size_t>(r) * stride, tiles_[kTile][r], bytes(kTile));
  }
  template <int kSums, int kInputs, int kWeights>
  void dot_int8() {
    demand_roles(kSums, kInputs, kWeights);
    for (int m = 0; m < shape_.rows; ++m) {
      for (int k = 0; k < shape_.depth / 4; ++k) {
        for (int n = 0; n < 16; ++n) {
          auto sum = get<uint32_t>(kSums, m, n);  // wraps
          for (int i = 0; i < 4; ++i)
            sum += static_cast<uint32_t>(get<int8_t>(kInputs, m, 4 * k + i) * get<int8_t>(kWeights, k, 4 * n + i));
          put(kSums, m, n, sum);
        }
      }
    }
  }
  template <int kSums, int kInputs, int kWeights>
  void dot_bf16() {
    demand_roles(kSums, kInputs, kWeights);
    const FlushDenormals flush(true);
    for (int m = 0; m < shape_.rows; ++m) {
      float even[16] = {}, odd[16] = {};
      for (int k = 0; k < shape_.depth / 4; ++k) {
        for (int n = 0; n < 16; ++n) {
          const auto fma = [&](int i, float sum) {
            return __builtin_fmaf(bf16_to_f32(get<uint16_t>(kInputs, m, 2 * k + i)),
                                  bf16_to_f32(get<uint16_t>(kWeights, k, 2 * n + i)), sum);
          };
          even[n] = fma(0, even[n]);
          odd[n] = fma(1, odd[n]);
        }
      }
      for (int n = 0; n < 16; ++n) put(kSums, m, n, get<float>(kSums, m, n) + (even[n] + odd[n]));
    }
  }

 private:
  static void demand(bool holds) {
    if (!holds) std::abort();  // the hardware's #UD
  }
  static void demand_roles(int sums, int inputs, int weights) {
    demand(sums < 4 && (inputs == 4 || inputs == 5) && weights >= 6);
  }
  int rows(int tile) const { return tile < 6 ? shape_.rows : shape_.depth / 4; }
  size_t bytes(int tile) const { return tile == 4 || tile == 5 ? static_cast<size_t>(shape_.depth) : 64; }
  template <class T>
  T get(int tile, int row, int column) const {
    T value;
    std::memcpy(&value, tiles_[tile][row] + static_cast<size_t>(column) * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void put(int tile, int row, int column, T value) {
    std::memcpy(tiles_[tile][row] + static_cast<size_t>(column) * sizeof(T), &value, sizeof(T));
  }

  TileShape shape_;
  char tiles_[8][16][64] = {};
};

}  // namespace
}  // namespace quire
