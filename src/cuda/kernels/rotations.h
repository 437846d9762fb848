// The cosines and sines of rotary position embedding, with the bits of RopeTable::at().
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"

namespace quire::cuda {

// sin_cos() of ops/sin_cos.cc, which has the derivation; for |angle| < 2^27.
DEVICE void sin_cos_of(double angle, double& sin, double& cos) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHigh = 0x1.921fb5p+0, kMiddle = 0x1.110b46p-26, kLow = 0x1.1a62633145c07p-54;
  constexpr double kRound = 0x1.8p52;
  const double quotient = (angle * kTwoOverPi + kRound) - kRound;
  const double x = ((angle - quotient * kHigh) - quotient * kMiddle) - quotient * kLow, z = x * x;

  double p = 1.58969099521155010221e-10;
  p = p * z - 2.50507602534068634195e-08;
  p = p * z + 2.75573137070700676789e-06;
  p = p * z - 1.98412698298579493134e-04;
  p = p * z + 8.33333333332248946124e-03;
  p = p * z - 1.66666666666666324348e-01;
  const double s = x + z * x * p;

  double q = -1.13596475577881948265e-11;
  q = q * z + 2.08757232129817482790e-09;
  q = q * z - 2.75573143513906633035e-07;
  q = q * z + 2.48015872894767294178e-05;
  q = q * z - 1.38888888888741095749e-03;
  q = q * z + 4.16666666666666019037e-02;
  const double half = 0.5 * z, w = 1 - half, c = w + ((1 - w - half) + z * z * q);

  const int quadrant = static_cast<int>(static_cast<int64_t>(quotient) & 3);
  sin = quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c;
  cos = quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s;
}

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
    double sin, cos;
    sin_cos_of(static_cast<double>(static_cast<float>(row.position) * frequencies[row.table + pair]), sin, cos);
    const Global<float> at = to + (static_cast<uint64_t>(row.row) * stride + static_cast<uint64_t>(2 * pair));
    at[0] = static_cast<float>(cos) * row.amplitude;
    at[1] = static_cast<float>(sin) * row.amplitude;
  }
};

}  // namespace quire::cuda
