// The cosines and sines of rotary position embedding, with the bits of RopeTable::at().
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "ops/sin_cos.h"

namespace quire::cuda {

struct RotationRow {
  int row, position;
  int table;  // where its frequencies begin
  float amplitude;
};

// One thread computes one pair of one row.
struct Rotations {
  static constexpr const char* kName = "rotations";
  static constexpr int kThreads = 128;
  Global<const RotationRow> rows;
  Global<const float> frequencies;  // [tables][pairs]
  Global<float> to;                 // [.., pairs][2]
  uint64_t stride;                  // floats from row to row
  int count, pairs;

  DEVICE void operator()() const {
    const int i = block_x() * kThreads + thread();
    if (i >= count * pairs) return;
    const RotationRow row = rows[i / pairs];
    const int pair = i % pairs;
    const auto [sin, cos] =
        small_sin_cos(static_cast<double>(static_cast<float>(row.position) * frequencies[row.table + pair]));
    const Global<float> at = to + (static_cast<uint64_t>(row.row) * stride + static_cast<uint64_t>(2 * pair));
    at[0] = static_cast<float>(cos) * row.amplitude;
    at[1] = static_cast<float>(sin) * row.amplitude;
  }
};

}  // namespace quire::cuda
