// Weights as the kernels read them: panels of 16 outputs, cut into blocks of 32 inputs. Lossless for every type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor_type.h"

namespace quire {

inline constexpr int kPanel = 16;  // outputs in a panel: the lanes of one AVX-512 register, the columns of one AMX tile
inline constexpr int kBlock = 32;  // inputs in a block

// How a quantized type is described to the kernels: weight = scale * (q - zero) + minimum, in groups of inputs.
struct PackedFormat {
  int bits;          // of q: 4, 5, 6 or 8; 16 or 32 for floats, which have no scale
  int group;         // inputs that share a scale: 16 or 32
  int zero;          // q counts from here; 8-bit q are stored signed, so 0
  bool has_minimum;  // the type stores a minimum (or zero point) for each group
  bool super_block;  // scales and minima are small integers times a float16 for each 256 inputs
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

// Where the parts of one panel lie, in bytes from its start. Each part is an array over blocks (or groups, or 256-input
// super-blocks) of entries for the 16 outputs.
//
//   supers   float16[16] for each 256 inputs: what the integer scales are multiplied with      (K types)
//   super_minima  likewise, for the minima
//   scales   float16[16] for each group, or int8[16] (Q6_K), uint8[16] (Q4_K, Q5_K)
//   minima   float16[16] for each group, or uint8[16], to be subtracted                        (K types)
//   quants   for each block:
//     4 bit: 4 lines of 64 bytes. Bytes 4n..4n+3 of line l belong to output n; as two 16-bit words w0, w1, the nibble i
//     of
//            word p is input 8l + 2i + p. So a line serves bf16 tiles (pairs of neighbouring inputs) as well as int8
//            dot products, where the four low nibbles are inputs 8l + {0, 4, 1, 5} and the four high ones 8l + {2, 6,
//            3, 7}: int8 activations are stored in that order (kPairOrder).
//     5 bit: the same, then 64 bytes: for each line and nibble half 64 bits, the fifth bit of each byte's q.
//     6 bit: the same, then 2 lines of 64 bytes: bits 5..4 of line l's low nibbles are bits (4(l%2))..+1 of line l/2's
//     bytes,
//            of its high nibbles the next two bits.
//     8 bit: 8 lines; line 2l holds inputs 8l + {0, 4, 1, 5}, line 2l+1 inputs 8l + {2, 6, 3, 7}, signed.
//     bf16:  16 lines; dword n of line r is inputs 2r (low half) and 2r+1 of output n: an AMX tile.
//     f16, f32: 32 lines of 16 values, one line an input.
struct PanelLayout {
  size_t supers, super_minima, scales, minima, quants;  // offsets
  size_t block_bytes;                                   // of quants
  size_t bytes;                                         // of a whole panel, a multiple of 64
};
PanelLayout panel_layout(TensorType type, int blocks);

inline constexpr std::array<int, 8> kPairOrder = {0, 4, 1, 5, 2, 6, 3, 7};

// A packed matrix of [rows, cols] weights in memory that someone else owns. Rows are padded to whole panels, columns to
// whole blocks; what is padded counts as zero.
struct PackedMatrix {
  TensorType type = TensorType::F32;
  int rows = 0, cols = 0;  // outputs, inputs
  const std::byte* data = nullptr;
  PanelLayout layout{};

  int panels() const { return (rows + kPanel - 1) / kPanel; }
  int blocks() const { return (cols + kBlock - 1) / kBlock; }
  const std::byte* panel(int p) const { return data + static_cast<size_t>(p) * layout.bytes; }
  size_t bytes() const { return static_cast<size_t>(panels()) * layout.bytes; }
};

// Describes a matrix; data is still to be set (64-byte aligned, bytes() long).
PackedMatrix describe_packed(TensorType type, int rows, int cols);

// Packs panels [begin, end) from `source`, the matrix as it lies in the file (row after row, any alignment); `data` is
// matrix.data, writable.
void pack_panels(const PackedMatrix& matrix, std::span<const std::byte> source, std::byte* data, int begin, int end);

// One weight, exactly as dequantize() gives it: the slow way, for the reference kernels and tests.
float packed_weight(const PackedMatrix& matrix, int row, int col);

// A whole row of weights to out [cols]: a token's embedding.
void unpack_row(const PackedMatrix& matrix, int row, float* out);

// The parts of one weight: weight = scale * (q - zero) + minimum. Only for quantized types.
struct WeightParts {
  int q;  // zero already subtracted
  float scale, minimum;
};
WeightParts packed_parts(const PackedMatrix& matrix, int row, int col);

}  // namespace quire
