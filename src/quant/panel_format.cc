#include "quant/panel_format.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>

#include "base/float8.h"
#include "base/half.h"

namespace quire {
namespace {

float as_int8(uint32_t bits) { return static_cast<float>(static_cast<int8_t>(bits)); }

float scale_of(const PanelFormat& format, float factor, const CodedRow& row, size_t group, size_t super) {
  const uint32_t bits = row.scales[group];
  switch (format.scale) {
    case ScaleKind::kF16:
      return f16_to_f32(static_cast<uint16_t>(bits));
    case ScaleKind::kF32:
      return std::bit_cast<float>(bits);
    case ScaleKind::kE8M0:
      return half_e8m0_to_f32(static_cast<uint8_t>(bits));
    case ScaleKind::kE4M3:
      return e4m3_to_f32(static_cast<uint8_t>(bits)) * factor;
    case ScaleKind::kSuper:
      return f16_to_f32(row.supers[super]) * factor * as_int8(bits);
    case ScaleKind::kNone:
      break;
  }
  assert(false && "codes without scales are the weights themselves");
  return 0;
}

float minimum_of(const PanelFormat& format, const CodedRow& row, float scale, size_t group, size_t super) {
  const uint32_t bits = row.minima[group];
  switch (format.zeros) {
    case ZeroKind::kF16:
      return f16_to_f32(static_cast<uint16_t>(bits));
    case ZeroKind::kF32:
      return std::bit_cast<float>(bits);
    case ZeroKind::kSuper:
      return -(f16_to_f32(row.super_minima[super]) * as_int8(bits));
    case ZeroKind::kInteger:
      return -(scale * as_int8(bits));
    case ZeroKind::kConstant:
      break;
  }
  assert(false);
  return 0;
}

// number(code): the number that the scale is multiplied with.
template <class Number>
void decode(const PanelFormat& format, float factor, const CodedRow& row, std::span<float> out, const Number& number) {
  const auto inputs = static_cast<size_t>(format.group);
  const uint8_t* codes = row.codes.data();
  for (size_t begin = 0, group = 0; begin < out.size(); begin += inputs, ++group) {
    const size_t end = std::min(out.size(), begin + inputs), super = begin / kSuperInputs;
    const float scale = scale_of(format, factor, row, group, super);
    if (has_minima(format)) {
      const float minimum = minimum_of(format, row, scale, group, super);
      for (size_t i = begin; i < end; ++i) out[i] = scale * number(codes[i]) + minimum;
    } else {
      for (size_t i = begin; i < end; ++i) out[i] = scale * number(codes[i]);
    }
  }
}

}  // namespace

void decode_row(const PanelFormat& format, float factor, const CodedRow& row, std::span<float> out) {
  assert(out.size() == row.codes.size() && format.group > 0);
  switch (format.codes) {
    case Codes::kU2:
    case Codes::kU3:
    case Codes::kU4:
    case Codes::kU5:
    case Codes::kU6:
      return decode(format, factor, row, out, [&](uint8_t code) { return static_cast<float>(code - format.zero); });
    case Codes::kI8:
      return decode(format, factor, row, out, [](uint8_t code) { return as_int8(code); });
    case Codes::kTable4:
    case Codes::kFloat4:
      return decode(format, factor, row, out, [&](uint8_t code) { return format.table[code & 15u]; });
    case Codes::kE4M3:
      return decode(format, factor, row, out, [](uint8_t code) { return e4m3_to_f32(code); });
    case Codes::kBf16:
    case Codes::kF16:
    case Codes::kF32:
      break;
  }
  assert(false && "floats have no codes");
}

}  // namespace quire
