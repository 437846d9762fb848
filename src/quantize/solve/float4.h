// Weights in 4-bit floats (E2M1) under small scales: MXFP4 (OCP Microscaling Formats 1.0; Rouhani et al., arXiv 2310.10537)
// and NVFP4 (NVIDIA, arXiv 2509.25149).
#pragma once

#include <cstdint>
#include <vector>

#include "base/team.h"
#include "quantize/solve/float_matrix.h"

namespace quire {

struct Float4Matrix {
  enum class Kind : uint8_t { kMxfp4, kNvfp4 };
  Kind kind = Kind::kMxfp4;
  int rows = 0, cols = 0;
  // kNvfp4: scales are divided by it. A power of two, so that readers that multiply by its inverse get the same bits.
  float divisor = 1;
  std::vector<uint8_t> codes;   // [rows, cols]: E2M1
  std::vector<uint8_t> scales;  // [rows, cols / group]: powers of two 2^(e - 127), or E4M3 that is not negative

  int group() const { return kind == Kind::kMxfp4 ? 32 : 16; }
  float scale_of(int row, int group) const;
  FloatMatrix dequantized() const;
};

// Of each group's scales near the one that covers it, the one that loses least: sum(importance * error^2). importance: [cols];
// empty: all count the same. Weights must be finite, and cols a multiple of the group. largest: the greatest magnitude of
// all matrices that share a divisor, at least that of these weights.
Float4Matrix round_to_mxfp4(const FloatMatrix& weights, std::span<const float> importance, Team& team);
Float4Matrix round_to_nvfp4(const FloatMatrix& weights, std::span<const float> importance, float largest, Team& team);

}  // namespace quire
