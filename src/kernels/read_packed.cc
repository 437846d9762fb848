// Reading packed panels in plain code: single weights, rows, and whether all numbers are finite.

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <limits>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/packed.h"
#include "kernels/panel_parts.h"

namespace quire {
namespace {

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Line `line` of output n: eight codes in the order of the inputs.
std::array<uint8_t, 8> read_line(int bits, const std::byte* block, int line, int n) {
  const auto* in = reinterpret_cast<const uint8_t*>(block);
  std::array<uint8_t, 8> codes{};
  for (size_t i = 0; i < 4; ++i) {
    const int at = 4 * n + static_cast<int>(i);
    unsigned low = 0, high = 0;
    if (bits == 8) {
      low = in[128 * line + at], high = in[128 * line + 64 + at];
    } else {
      if (bits >= 4) low = in[64 * line + at] & 15u, high = in[64 * line + at] >> 4;
      if (bits != 4 && bits != 5) {
        const unsigned plane = in[(bits == 6 ? 256 : 0) + 64 * (line / 2) + at] >> (4 * (line % 2));
        const int shift = bits == 6 ? 4 : 0;
        low |= (plane & 3u) << shift, high |= (plane >> 2 & 3u) << shift;
      }
      if (bits == 3 || bits == 5) {
        const uint8_t* masks = in + (bits == 3 ? 128 : 256) + 16 * line + at / 8;
        low |= (masks[0] >> (at % 8) & 1u) << (bits - 1), high |= (masks[8] >> (at % 8) & 1u) << (bits - 1);
      }
    }
    codes[static_cast<size_t>(kPairOrder[i])] = static_cast<uint8_t>(low);
    codes[static_cast<size_t>(kPairOrder[i + 4])] = static_cast<uint8_t>(high);
  }
  return codes;
}

float packed_float(const PackedMatrix& m, int row, int col) {
  const int n = row % kPanel;
  const std::byte* panel = m.panel(row / kPanel);
  switch (m.format.codes) {
    case Codes::kBf16:
      return bf16_to_f32(load<uint16_t>(panel + (col / 2 * 32 + 2 * n + col % 2) * 2));
    case Codes::kF16:
      return f16_to_f32(load<uint16_t>(panel + (col * kPanel + n) * 2));
    default:
      return load<float>(panel + (static_cast<ptrdiff_t>(col) * kPanel + n) * 4);
  }
}

// The scale and minimum of the group that input `col` is in; the code is left 0.
WeightParts packed_scales(const PackedMatrix& m, int row, int col) {
  const PanelLayout& at = m.layout;
  const std::byte* panel = m.panel(row / kPanel);
  const auto n = static_cast<size_t>(row % kPanel), group = static_cast<size_t>(col / m.format.group),
             super = static_cast<size_t>(col / kSuperInputs);
  const auto f16 = [&](size_t part, size_t entry) {
    return f16_to_f32(load<uint16_t>(panel + part + (entry * kPanel + n) * 2));
  };
  const auto i8 = [&](size_t part, size_t entry) {
    return static_cast<float>(load<int8_t>(panel + part + entry * kPanel + n));
  };
  WeightParts parts{};
  switch (m.format.scale) {
    case ScaleKind::kNone:
      break;
    case ScaleKind::kF16:
      parts.scale = f16(at.scales, group);
      break;
    case ScaleKind::kF32:
      parts.scale = load<float>(panel + at.scales + (group * kPanel + n) * 4);
      break;
    case ScaleKind::kE8M0:
      parts.scale = half_e8m0_to_f32(load<uint8_t>(panel + at.scales + group * kPanel + n));
      break;
    case ScaleKind::kE4M3:
      parts.scale = e4m3_to_f32(load<uint8_t>(panel + at.scales + group * kPanel + n)) * m.factor;
      break;
    case ScaleKind::kSuper:
      parts.scale = f16(at.supers, super) * m.factor * i8(at.scales, group);
      break;
  }
  switch (m.format.zeros) {
    case ZeroKind::kConstant:
      break;
    case ZeroKind::kF16:
      parts.minimum = f16(at.minima, group);
      break;
    case ZeroKind::kF32:
      parts.minimum = load<float>(panel + at.minima + (group * kPanel + n) * 4);
      break;
    case ZeroKind::kSuper:
      parts.minimum = -(f16(at.super_minima, super) * i8(at.minima, group));
      break;
    case ZeroKind::kInteger:
      parts.minimum = -(parts.scale * i8(at.minima, group));
      break;
  }
  return parts;
}

float code_value(const PanelFormat& format, uint8_t code) {
  switch (format.codes) {
    case Codes::kI8:
      return static_cast<float>(static_cast<int8_t>(code));
    case Codes::kTable4:
    case Codes::kFloat4:
      return format.table[code];
    case Codes::kE4M3:
      return e4m3_to_f32(code);
    default:
      return static_cast<float>(code - format.zero);
  }
}

// Whether no float has all bits of its exponent set. Adding the lowest of them to the others carries into the sign.
template <class T>
bool all_finite(const std::byte* data, size_t bytes, uint64_t exponent) {
  constexpr uint64_t kEach = ~uint64_t{0} / std::numeric_limits<T>::max();  // 1 in each T of a word
  constexpr uint64_t kSigns = kEach << (8 * sizeof(T) - 1);
  const uint64_t mask = exponent * kEach, lowest = (exponent & (~exponent + 1)) * kEach;
  uint64_t sums[4] = {};  // panels are multiples of 32 bytes
  assert(bytes % sizeof sums == 0);
  for (size_t i = 0; i < bytes; i += sizeof sums) {
    for (size_t j = 0; j < 4; ++j) sums[j] |= (load<uint64_t>(data + i + 8 * j) & mask) + lowest;
  }
  return ((sums[0] | sums[1] | sums[2] | sums[3]) & kSigns) == 0;
}

}  // namespace

bool is_finite(const PackedMatrix& m, int panel) {
  const std::byte* data = m.panel(panel);
  const PanelLayout& at = m.layout;
  constexpr uint64_t kF16 = 0x7C00, kBf16 = 0x7F80, kF32 = 0x7F80'0000;  // exponents
  const size_t code_bytes = static_cast<size_t>(m.blocks()) * at.block_bytes;
  const PanelCounts counts = panel_counts(m.format, m.blocks());
  const auto f16s = [&](size_t part, size_t entries) {
    return all_finite<uint16_t>(data + part, entries * kPanel * sizeof(uint16_t), kF16);
  };
  const auto f32s = [&](size_t part) {
    return all_finite<uint32_t>(data + part, counts.groups * kPanel * sizeof(float), kF32);
  };
  const auto no_byte = [&](size_t part, size_t bytes, uint8_t mask, uint8_t bad) {
    return std::none_of(data + part, data + part + bytes,
                        [=](std::byte b) { return (static_cast<uint8_t>(b) & mask) == bad; });
  };
  switch (m.format.codes) {
    case Codes::kF32:
      return all_finite<uint32_t>(data + at.codes, code_bytes, kF32);
    case Codes::kF16:
      return all_finite<uint16_t>(data + at.codes, code_bytes, kF16);
    case Codes::kBf16:
      return all_finite<uint16_t>(data + at.codes, code_bytes, kBf16);
    case Codes::kE4M3:
      if (!no_byte(at.codes, code_bytes, 0x7F, 0x7F)) return false;
      break;
    default:
      break;
  }
  if (m.format.zeros == ZeroKind::kF16 && !f16s(at.minima, counts.groups)) return false;
  if (m.format.zeros == ZeroKind::kF32 && !f32s(at.minima)) return false;
  if (m.format.zeros == ZeroKind::kSuper && !f16s(at.super_minima, counts.supers)) return false;
  switch (m.format.scale) {
    case ScaleKind::kF16:
      return f16s(at.scales, counts.groups);
    case ScaleKind::kSuper:
      return f16s(at.supers, counts.supers);
    case ScaleKind::kF32:
      return f32s(at.scales);
    case ScaleKind::kE8M0:
      return no_byte(at.scales, counts.groups * kPanel, 0xFF, 0xFF);
    case ScaleKind::kE4M3:
      return no_byte(at.scales, counts.groups * kPanel, 0x7F, 0x7F);
    case ScaleKind::kNone:
      break;
  }
  return true;
}

WeightParts packed_parts(const PackedMatrix& m, int row, int col) {
  WeightParts parts = packed_scales(m, row, col);
  const std::byte* block =
      m.panel(row / kPanel) + m.layout.codes + static_cast<size_t>(col / kBlockInputs) * m.layout.block_bytes;
  const auto line = read_line(code_bits(m.format.codes), block, col % kBlockInputs / 8, row % kPanel);
  parts.code = code_value(m.format, line[static_cast<size_t>(col % 8)]);
  return parts;
}

TwoLevels packed_two_levels(const PackedMatrix& m, int row, int col) {
  const std::byte* panel = m.panel(row / kPanel);
  const int n = row % kPanel, group = col / m.format.group * kPanel + n, super = col / kSuperInputs * kPanel + n;
  const auto f16 = [&](size_t part) { return f16_to_f32(load<uint16_t>(panel + part + super * 2)); };
  const auto i8 = [&](size_t part) { return static_cast<float>(load<int8_t>(panel + part + group)); };
  TwoLevels levels{i8(m.layout.scales), f16(m.layout.supers) * m.factor};
  if (m.format.zeros == ZeroKind::kSuper)
    levels.minimum_part = i8(m.layout.minima), levels.super_minimum = -f16(m.layout.super_minima);
  return levels;
}

float packed_weight(const PackedMatrix& m, int row, int col) {
  if (!has_scales(m.format)) return packed_float(m, row, col);
  const WeightParts parts = packed_parts(m, row, col);
  const float value = parts.scale * parts.code;
  return has_minima(m.format) ? value + parts.minimum : value;
}

void unpack_row(const PackedMatrix& m, int row, float* out) {
  if (!has_scales(m.format)) {
    for (int col = 0; col < m.cols; ++col) out[col] = packed_float(m, row, col);
    return;
  }
  // A prompt's embeddings: scales are read once for 16 inputs, codes a line at a time.
  const std::byte* block = m.panel(row / kPanel) + m.layout.codes;
  const int bits = code_bits(m.format.codes);
  WeightParts parts{};
  for (int col = 0; col < m.cols; col += 8) {
    if (col % 16 == 0) parts = packed_scales(m, row, col);
    const auto codes = read_line(bits, block + static_cast<size_t>(col / kBlockInputs) * m.layout.block_bytes,
                                 col % kBlockInputs / 8, row % kPanel);
    for (int i = 0; i < 8 && col + i < m.cols; ++i) {
      const float value = parts.scale * code_value(m.format, codes[static_cast<size_t>(i)]);
      out[col + i] = has_minima(m.format) ? value + parts.minimum : value;
    }
  }
}

}  // namespace quire
