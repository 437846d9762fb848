// Weights as the kernels read them: panels of 16 outputs, cut into blocks of 32 inputs. Packing loses nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/tensor_type.h"
#include "kernels/types.h"
#include "quant/panel_format.h"

namespace quire {

inline constexpr int kPanel = 16;  // outputs in a panel: the lanes of one AVX-512 register, the columns of one AMX tile
inline constexpr int kBlockInputs = 32;  // inputs in a block: the group of most formats, the depth of a bf16 tile

// The parts of one panel, in this order. Each is an array over blocks (or groups, or 256-input super-blocks) whose
// entries hold something for each of the 16 outputs.
//
//   supers        float16[16] per 256 inputs        (ScaleKind::kSuper)
//   super_minima  float16[16] per 256 inputs        (ZeroKind::kSuper)
//   scales        per group: float16, float32, uint8 or int8 [16]
//   minima        per group: float16, float32 or int8 [16]
//   codes         per block, by the bits of a code:
//     4     4 lines of 64 bytes. Bytes 4n .. 4n+3 of line l belong to output n:
//             as 16-bit words w0, w1:  nibble i of word p is input 8l + 2i + p
//             as bytes:                low nibbles are inputs 8l + {0, 4, 1, 5}, high ones 8l + {2, 6, 3, 7}
//           The words serve bf16 tiles (pairs of neighbouring inputs), the bytes int8 dot products, whose activations
//           are stored in the same order (kPairOrder).
//     2     2 lines of 64 bytes. In line l/2, from bit 4(l%2) of each byte:
//             2 bits of what line l has as its low nibble in 4 bits;  2 bits of its high nibble
//     3, 5  as 2 and 4, then 64 bytes: for each line, for low and high nibbles, 64 bits: the top bit of each byte's code
//     6     as 4, then as 2: bits 4 and 5
//     8     8 lines: line 2l has inputs 8l + {0, 4, 1, 5}, line 2l+1 inputs 8l + {2, 6, 3, 7}
//     bf16  16 lines: dword n of line r has inputs 2r (low half) and 2r+1 of output n, as in an AMX tile
//     f16, f32  32 lines of 16 values: one line per input
struct PanelLayout {
  size_t supers, super_minima, scales, minima, codes;  // offsets
  size_t block_bytes;                                  // bytes of a block's codes
  size_t bytes;                                        // bytes of a whole panel, a multiple of 64
};
PanelLayout panel_layout(const PanelFormat& format, int blocks);

constexpr size_t code_block_bytes(Codes codes) {
  return static_cast<size_t>(code_bits(codes)) * kBlockInputs * kPanel / 8;
}

inline constexpr std::array<int, 8> kPairOrder = {0, 4, 1, 5, 2, 6, 3, 7};

// A packed matrix of [rows, cols] weights; does not own its memory. Rows are padded with zeros to whole panels, columns
// to whole blocks: padded inputs are zeros.
struct PackedMatrix {
  PanelFormat format;
  float factor = 1;        // multiplies kE4M3 and kSuper scales
  int rows = 0, cols = 0;  // outputs, inputs
  const std::byte* data = nullptr;
  PanelLayout layout{};

  int panels() const { return (rows + kPanel - 1) / kPanel; }
  int blocks() const { return (cols + kBlockInputs - 1) / kBlockInputs; }
  const std::byte* panel(int p) const { return data + static_cast<size_t>(p) * layout.bytes; }
  size_t bytes() const { return static_cast<size_t>(panels()) * layout.bytes; }
};

// A matrix without data; the caller sets `data` (64-byte aligned, bytes() long).
PackedMatrix describe_packed(const PanelFormat& format, float factor, int rows, int cols);
PackedMatrix describe_packed(TensorType type, int rows, int cols);

// Memory for up to kPanel rows of weights that are taken apart.
class PanelRows {
 public:
  PanelRows(const PanelFormat& format, int cols);
  std::span<const CodedRow> first(size_t rows) const { return std::span(rows_).first(rows); }

 private:
  std::array<CodedRow, kPanel> rows_;
  std::vector<uint8_t> codes_;
  std::vector<uint32_t> scales_, minima_;
  std::vector<uint16_t> supers_, super_minima_;
};

// Packs one panel of at most kPanel rows.
void pack_panel(const PackedMatrix& matrix, std::span<const CodedRow> rows, std::byte* panel);
// rows: as in a file, of any alignment. `scratch` is overwritten.
void pack_panel(const PackedMatrix& matrix, TensorType type, std::span<const std::byte* const> rows, PanelRows& scratch,
                std::byte* panel);
// Packs panels [begin, end) into `data`, the matrix's memory. source: the whole matrix as in the file, row after row;
// it may have any alignment.
void pack_panels(const PackedMatrix& matrix, TensorType type, std::span<const std::byte> source, std::byte* data,
                 int begin, int end);

// Whether a packed panel has neither NaN nor infinity among its weights or scales. Fast: reads only those codes that
// can be NaN.
bool is_finite(const PackedMatrix& matrix, int panel);

// The parts of one weight: weight = scale * code + minimum; the zero point is already subtracted from the code.
struct WeightParts {
  float code, scale, minimum;
};
WeightParts packed_parts(const PackedMatrix& matrix, int row, int col);

// Scales and minima of ScaleKind::kSuper and ZeroKind::kSuper before they are multiplied: scale = part * super.
struct TwoLevels {
  float part, super;
  float minimum_part = 0, super_minimum = 0;
};
TwoLevels packed_two_levels(const PackedMatrix& matrix, int row, int col);

// One weight, with the bits that decode_row() gives. Slow: for the reference kernels and tests.
float packed_weight(const PackedMatrix& matrix, int row, int col);

// A row of weights to out [cols], such as a token's embedding.
void unpack_row(const PackedMatrix& matrix, int row, float* out);

// The definition in force for weights of a format: without integer codes there is no int8 definition, and without FP8 codes none of
// FP8; inputs are then rounded to bf16.
constexpr bool takes_fp8(const PanelFormat& format) {
  return format.codes == Codes::kE4M3 && format.group % kBlockInputs == 0;
}
constexpr Activations activations_for(Activations mode, const PanelFormat& format) {
  if (mode == Activations::kFp8 && !takes_fp8(format)) return Activations::kBf16;
  return has_int8_blocks(mode) && !has_integer_codes(format.codes) ? Activations::kBf16 : mode;
}

inline constexpr int kMostInt8RowInputs = 1 << 17;  // 127 * 127 of each fit in 31 bits
constexpr bool takes_int8_rows(const PackedMatrix& w) {
  return w.format.codes == Codes::kI8 && w.format.scale == ScaleKind::kF32 && !has_minima(w.format) &&
         w.format.group >= w.cols && w.cols <= kMostInt8RowInputs;
}

}  // namespace quire
