// NF4 and FP4 as bitsandbytes has them (QLoRA: Dettmers et al., arXiv 2305.14314): codes into a table of 16 numbers, under
// the greatest magnitude of each run of weights, which double quantization stores in a byte.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/team.h"
#include "quantize/solve/float_matrix.h"

namespace quire {

struct Table4Matrix {
  enum class Kind : uint8_t { kNf4, kFp4 };
  static constexpr int kBlock = 64, kNestedBlock = 256;  // weights under a magnitude; magnitudes under one of theirs

  Kind kind = Kind::kNf4;
  int rows = 0, cols = 0;
  std::vector<uint8_t> codes;        // [rows, cols]
  std::vector<float> magnitudes;     // of each run of kBlock weights in row-major order; empty: nested
  std::vector<uint8_t> nested;       // likewise, as codes into dynamic_map()
  std::vector<float> nested_scales;  // of each run of kNestedBlock codes
  float offset = 0;                  // added to nested magnitudes

  float magnitude_of(size_t block) const;
  FloatMatrix dequantized() const;
};

const std::array<float, 16>& table_of(Table4Matrix::Kind kind);
// bitsandbytes' create_dynamic_map(): 256 numbers in -1 .. 1, in order, denser near 0.
const std::array<float, 256>& dynamic_map();

// The codes that bitsandbytes chooses (of FP4's two codes for 0 always the first); the mean that double quantization subtracts may differ in its last bit,
// by the order of the sum. weights: finite.
Table4Matrix round_to_table4(const FloatMatrix& weights, Table4Matrix::Kind kind, bool double_quantization, Team& team);

}  // namespace quire
