// Weights as the kernels read them: panels of 16 outputs, cut into blocks of 32 inputs. Packing loses nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor_type.h"

namespace quire {

inline constexpr int kPanel = 16;  // outputs in a panel: the lanes of one AVX-512 register, the columns of one AMX tile
inline constexpr int kBlockInputs = 32;  // inputs in a block: the group of most types, the depth of a bf16 tile

// A quantized type: weight = scale * (q - zero) + minimum, in groups of inputs.
struct PackedFormat {
  int bits;          // of q: 4, 5, 6 or 8; floats: 16 or 32
  int group;         // inputs that share a scale: 16 or 32; floats: 0
  int zero;          // what q stands for 0; 8-bit q are signed, so 0
  bool has_minimum;  // the type stores a minimum (or zero point) for each group
  bool super_block;  // scales and minima are small integers times a float16 per 256 inputs
};
constexpr PackedFormat packed_format(TensorType type) {
  switch (type) {
    case TensorType::Q4_0:
      return {4, 32, 8, false, false};
    case TensorType::Q4_1:
      return {4, 32, 0, true, false};
    case TensorType::Q5_0:
      return {5, 32, 16, false, false};
    case TensorType::Q5_1:
      return {5, 32, 0, true, false};
    case TensorType::Q8_0:
      return {8, 32, 0, false, false};
    case TensorType::Q4_K:
      return {4, 32, 0, true, true};
    case TensorType::Q5_K:
      return {5, 32, 0, true, true};
    case TensorType::Q6_K:
      return {6, 16, 32, false, true};
    case TensorType::F16:
    case TensorType::BF16:
      return {16, 0, 0, false, false};
    default:
      return {32, 0, 0, false, false};  // F32
  }
}
constexpr bool is_quantized(TensorType type) { return packed_format(type).group != 0; }

// The parts of one panel, in this order. Each is an array over blocks (or groups, or 256-input super-blocks) whose
// entries hold something for each of the 16 outputs.
//
//   supers        float16[16] per 256 inputs: multiplies the integer scales                     (K types)
//   super_minima  float16[16] per 256 inputs: multiplies the integer minima                     (K types)
//   scales        per group: float16[16], or int8[16] (Q6_K), uint8[16] (Q4_K, Q5_K)
//   minima        per block: float16[16], to be added; or uint8[16], to be subtracted (K types)
//   quants        per block, by the bits of an element:
//     4     4 lines of 64 bytes. Bytes 4n .. 4n+3 of line l belong to output n:
//             as 16-bit words w0, w1:  nibble i of word p is input 8l + 2i + p
//             as bytes:                low nibbles are inputs 8l + {0, 4, 1, 5}, high ones 8l + {2, 6, 3, 7}
//           The words serve bf16 tiles (pairs of neighbouring inputs), the bytes int8 dot products, whose activations
//           are stored in the same order (kPairOrder).
//     5     as 4, then 64 bytes: for each line, for low and high nibbles, 64 bits: the fifth bit of each byte's element
//     6     as 4, then 2 lines of 64 bytes. In line l/2, from bit 4(l%2) of each byte:
//             2 bits: bits 4, 5 of line l's low nibble;  2 bits: of its high nibble
//     8     8 lines: line 2l has inputs 8l + {0, 4, 1, 5}, line 2l+1 inputs 8l + {2, 6, 3, 7}, signed
//     bf16  16 lines: dword n of line r has inputs 2r (low half) and 2r+1 of output n, as in an AMX tile
//     f16, f32  32 lines of 16 values: one line per input
struct PanelLayout {
  size_t supers, super_minima, scales, minima, quants;  // offsets
  size_t block_bytes;                                   // of quants
  size_t bytes;                                         // of a whole panel, a multiple of 64
};
PanelLayout panel_layout(TensorType type, int blocks);

inline constexpr std::array<int, 8> kPairOrder = {0, 4, 1, 5, 2, 6, 3, 7};

// A packed matrix of [rows, cols] weights; does not own its memory. Rows are padded with zeros to whole panels, columns
// to whole blocks.
struct PackedMatrix {
  TensorType type = TensorType::F32;
  int rows = 0, cols = 0;  // outputs, inputs
  const std::byte* data = nullptr;
  PanelLayout layout{};

  int panels() const { return (rows + kPanel - 1) / kPanel; }
  int blocks() const { return (cols + kBlockInputs - 1) / kBlockInputs; }
  const std::byte* panel(int p) const { return data + static_cast<size_t>(p) * layout.bytes; }
  size_t bytes() const { return static_cast<size_t>(panels()) * layout.bytes; }
};

// A matrix without data; the caller sets `data` (64-byte aligned, bytes() long).
PackedMatrix describe_packed(TensorType type, int rows, int cols);

// Packs panels [begin, end) into `data`, the matrix's memory. source: the whole matrix as in the file, row after row,
// of any alignment.
void pack_panels(const PackedMatrix& matrix, std::span<const std::byte> source, std::byte* data, int begin, int end);
// Packs one panel. rows: its rows in the file, at most kPanel, of any alignment.
void pack_panel(const PackedMatrix& matrix, std::span<const std::byte* const> rows, std::byte* panel);

// Whether a packed panel has neither NaN nor infinity among its weights or float16 scales. Fast: reads no quants but
// those of floats.
bool is_finite(const PackedMatrix& matrix, int panel);

// One weight, with the bits that dequantize() gives. Slow: for the reference kernels and tests.
float packed_weight(const PackedMatrix& matrix, int row, int col);

// A row of weights to out [cols], such as a token's embedding.
void unpack_row(const PackedMatrix& matrix, int row, float* out);

// The parts of one weight: weight = scale * (q - zero) + minimum. Only for quantized types.
struct WeightParts {
  int q;  // zero already subtracted
  float scale, minimum;
};
WeightParts packed_parts(const PackedMatrix& matrix, int row, int col);

}  // namespace quire
