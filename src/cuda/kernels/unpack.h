// Rows of packed weights to float32, with the bits of unpack_row() (kernels/packed.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// A matrix for reading single weights.
struct UnpackedMatrix {
  WeightShape shape;
  Global<const uint8_t> data;
  float table[16];  // of kTable4 and kFloat4
  int32_t bits;     // of a code
  int32_t zero;
  Codes codes;
  uint8_t unused[7] = {};  // instead of padding: launches are compared byte for byte
};

// The code of input `col` of output n of the panel. block: the address of the block's codes.
DEVICE uint32_t unpack_code(Global<const uint8_t> block, int bits, int n, int col) {
  // The place of an input among eight (kPairOrder): byte 0 .. 3 of a dword, of its low or its high nibbles.
  const int line = col / 8, in_line = col % 8, pair = in_line / 2;
  const int byte = 2 * (in_line % 2) + pair / 2, high = pair % 2, at = 4 * n + byte;
  if (bits == 8) return block[128 * line + 64 * high + at];
  uint32_t code = 0;
  if (bits >= 4) code = static_cast<uint32_t>(block[64 * line + at]) >> (4 * high) & 15u;
  if (bits != 4 && bits != 5) {
    const uint32_t plane = block[(bits == 6 ? 256 : 0) + 64 * (line / 2) + at];
    code |= (plane >> (4 * (line % 2) + 2 * high) & 3u) << (bits == 6 ? 4 : 0);
  }
  if (bits % 2 == 1) {
    const uint32_t masks = block[(bits == 3 ? 128 : 256) + 16 * line + 8 * high + at / 8];
    code |= (masks >> (at % 8) & 1u) << (bits - 1);
  }
  return code;
}

DEVICE float code_number(const UnpackedMatrix& m, uint32_t code) {
  switch (m.codes) {
    case Codes::kI8:
      return int8_number(code);
    case Codes::kTable4:
    case Codes::kFloat4:
      return m.table[code];
    case Codes::kE4M3:
      return e4m3(static_cast<uint8_t>(code));
    default:
      return static_cast<float>(static_cast<int32_t>(code) - m.zero);
  }
}

// Weight `col` of output n of the panel.
DEVICE float unpack_weight(const UnpackedMatrix& m, Global<const uint8_t> panel, int n, int col) {
  const WeightShape& w = m.shape;
  const auto codes = panel + w.codes;
  const auto at = static_cast<ptrdiff_t>(col) * kPanel + n;
  if (m.codes == Codes::kBf16) {
    const auto pair = static_cast<ptrdiff_t>(col / 2) * 2 * kPanel + 2 * n + col % 2;
    return low_bf16(cast<const uint16_t>(codes)[pair]);
  }
  if (m.codes == Codes::kF16) return low_f16(cast<const uint16_t>(codes)[at]);
  if (m.codes == Codes::kF32) return cast<const float>(codes)[at];

  // Of outputs 2g and 2g + 1, as load_scales() reads them.
  const int block = col / kBlockInputs;
  ScaleWords words{};
  load_scales(w, panel, block, col % kBlockInputs / (kBlockInputs / 2), n / 2, words);
  const Scales scales = convert_scales(w, words);
  const float scale = n % 2 == 0 ? scales.scale[0] : scales.scale[1];
  const float minimum = n % 2 == 0 ? scales.minimum[0] : scales.minimum[1];
  const auto block_codes = codes + static_cast<ptrdiff_t>(block) * m.bits * (kBlockInputs * kPanel / 8);
  const float value = scale * code_number(m, unpack_code(block_codes, m.bits, n, col % kBlockInputs));
  return minima_of(w) ? value + minimum : value;
}

// x = scale * matrix[ids], or x += . Block (x, y): part x of row y.
struct EmbedRows {
  static constexpr const char* kName = "embed_rows";
  static constexpr int kThreads = 256;

  UnpackedMatrix matrix;
  Global<const int32_t> ids;
  Global<const int32_t> found;  // if not null, `ids` are places there
  RowsAt<float> x;
  int32_t cols;
  float scale;
  int32_t accumulate;
  int32_t unused = 0;

  DEVICE void operator()() const {
    int id = ids[block_y()];
    if (found) id = found[id];
    if (id < 0) return;
    const auto panel = matrix.data + static_cast<ptrdiff_t>(id / kPanel) * matrix.shape.panel_bytes;
    const auto to = x.row(block_y());
    for (int col = block_x() * kThreads + thread(); col < cols; col += blocks_x() * kThreads) {
      const float value = unpack_weight(matrix, panel, id % kPanel, col);
      to[col] = accumulate != 0 ? fma_of(value, scale, to[col]) : value * scale;
    }
  }
};

}  // namespace quire::cuda
