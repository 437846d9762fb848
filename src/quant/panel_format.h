// What packed weights are made of, whatever file they come from.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace quire {

// How one weight is coded.
enum class Codes : uint8_t {
  kU2,  // unsigned integers of so many bits
  kU3,
  kU4,
  kU5,
  kU6,
  kI8,      // signed
  kTable4,  // 4 bits that index a table of integers in -127 .. 127
  kFloat4,  // 4 bits that index a table of float32 numbers
  kE4M3,    // 8-bit floats with 4 bits of exponent, without infinities (OCP "E4M3FN")
  kBf16,    // the weight itself, without scale
  kF16,
  kF32,
};

constexpr int code_bits(Codes codes) {
  switch (codes) {
    case Codes::kU2:
      return 2;
    case Codes::kU3:
      return 3;
    case Codes::kU4:
    case Codes::kTable4:
    case Codes::kFloat4:
      return 4;
    case Codes::kU5:
      return 5;
    case Codes::kU6:
      return 6;
    case Codes::kI8:
    case Codes::kE4M3:
      return 8;
    case Codes::kBf16:
    case Codes::kF16:
      return 16;
    case Codes::kF32:
      return 32;
  }
  return 0;
}
// Codes that stand for integers, which int8 inputs can be multiplied with exactly.
constexpr bool has_integer_codes(Codes codes) { return codes <= Codes::kTable4; }

enum class ScaleKind : uint8_t {
  kNone,   // for kBf16, kF16 and kF32
  kF16,    // float16
  kF32,    // float32
  kE8M0,   // a byte e for 2^(e - 128): its tables hold doubled numbers
  kE4M3,   // an 8-bit float that is not negative, times the matrix's factor
  kSuper,  // an int8, times a float16 for every 256 inputs, times the matrix's factor (a power of two)
};

enum class ZeroKind : uint8_t {
  kConstant,  // PanelFormat::zero, for all weights
  kF16,       // a float16 minimum is added
  kSuper,     // an int8, times a float16 for every 256 inputs, is subtracted
  kInteger,   // an int8 zero point: scale * zero, rounded to float32, is subtracted
  kF32,       // a float32 minimum is added
};

// weight = scale * (code - zero) + minimum, with a scale and a minimum for each `group` inputs of an output. Computed in
// float32, without fused multiply-adds: first scale * (code - zero), then the minimum is added, if there is one.
struct PanelFormat {
  Codes codes = Codes::kF32;
  ScaleKind scale = ScaleKind::kNone;
  ZeroKind zeros = ZeroKind::kConstant;
  int zero = 0;                   // for kU2 .. kU6
  int group = 0;                  // 16, or a multiple of 32; 0: no scales
  std::array<float, 16> table{};  // for kTable4 and kFloat4

  bool operator==(const PanelFormat&) const = default;
};

inline constexpr int kSuperInputs = 256;  // inputs under one float16 of kSuper

// The integers of kSuper scales. In groups of 16, kernels multiply them with codes of 2 or 3 bits, less their zero point
// (0 or 4), and the products must have no more than 253 values.
struct IntegerRange {
  int least, most;
};
constexpr IntegerRange scale_range(const PanelFormat& f) {
  if (f.group == 16 && f.codes == Codes::kU2) return {0, 15};
  if (f.group == 16 && f.codes == Codes::kU3) return {-32, 31};
  return {-128, 127};
}

constexpr bool has_scales(const PanelFormat& f) { return f.scale != ScaleKind::kNone; }
// Groups of 16 whose integers products add up before the float16 above them (LinearArgs, kernels/kernels.h).
constexpr bool has_two_levels(const PanelFormat& f) { return f.scale == ScaleKind::kSuper && f.group == 16; }
constexpr bool has_minima(const PanelFormat& f) { return f.zeros != ZeroKind::kConstant; }

// One output's weights, taken apart: what packing puts into panels. The caller owns the memory, in whole groups: a last
// group that is partial has its own scale, and codes beyond the row's end are not read. Bits are zero-extended.
struct CodedRow {
  std::span<uint8_t> codes;          // [inputs]; kI8: two's complement
  std::span<uint32_t> scales;        // [groups]: the bits of each: of a float16, float32, byte or int8
  std::span<uint32_t> minima;        // [groups], likewise; empty: the format has none
  std::span<uint16_t> supers;        // [inputs / 256, rounded up], float16; empty: none
  std::span<uint16_t> super_minima;  // likewise
};

// The numbers that a row stands for. format: any but the floats, which have no codes. factor: of kE4M3 and kSuper scales.
// out: [codes.size()].
void decode_row(const PanelFormat& format, float factor, const CodedRow& row, std::span<float> out);

}  // namespace quire
