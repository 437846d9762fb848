// The angles of rotary position embedding.
#pragma once

#include <vector>

namespace quire {

// Radians per position for each pair of a head, in float32 as in the reference implementations (model/rope.h).
struct RopeTable {
  std::vector<float> frequencies;
  float amplitude = 1;  // multiplies cosines and sines

  // cos_sin [frequencies.size()][2]: the cosine and sine of each pair at a position.
  void at(int position, float* cos_sin) const;
};

// The angles of consecutive positions.
struct RotationSpan {
  const RopeTable* table;
  int row, rows;
  int position;  // the first row's
};

}  // namespace quire
