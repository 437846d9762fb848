#include "kernels/packed.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/panel_parts.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Bytes 0, 4, 1 and 5: the order of kPairOrder in one dword of a line. Those of x >> 16 are its second half.
uint32_t paired(uint64_t x) {
  return static_cast<uint32_t>((x & 0xff) | (x >> 24 & 0xff00) | (x << 8 & 0xff0000) | (x >> 16 & 0xff000000));
}

// Bit 0 of eight bytes, in kPairOrder. Every byte is moved by its own multiple of two, and no two meet.
uint8_t paired_bits(uint64_t x) {
  constexpr uint64_t kMoves = 1ull << 56 | 1ull << 50 | 1ull << 44 | 1ull << 38 | 1 << 25 | 1 << 19 | 1 << 13 | 1 << 7;
  return static_cast<uint8_t>((x & 0x0101010101010101) * kMoves >> 56);
}

// Writes 32 codes of output n to a block. The block is zero where the output's codes go.
template <int kBits>
void write_codes(const uint8_t* codes, size_t n, std::byte* block) {
  std::array<uint64_t, 4> lines;
  std::memcpy(lines.data(), codes, sizeof lines);
  auto* out = reinterpret_cast<uint8_t*>(block) + 4 * n;
  const auto put = [](uint8_t* to, uint32_t dword) { std::memcpy(to, &dword, sizeof dword); };
  if constexpr (kBits == 8) {
    for (size_t l = 0; l < 4; ++l) {
      put(out + 128 * l, paired(lines[l]));
      put(out + 128 * l + 64, paired(lines[l] >> 16));
    }
  }
  if constexpr (kBits >= 4 && kBits <= 6) {
    for (size_t l = 0; l < 4; ++l) {
      const uint64_t low = lines[l] & 0x0f0f0f0f0f0f0f0f;
      put(out + 64 * l, paired(low | low >> 12));  // a nibble and that of the input after the next
    }
  }
  if constexpr (kBits == 2 || kBits == 3 || kBits == 6) {  // two bits of each: all, or those above the nibble
    constexpr int kShift = kBits == 6 ? 4 : 0;
    constexpr size_t kPlane = kBits == 6 ? 256 : 0;
    for (size_t l = 0; l < 4; l += 2) {
      const uint64_t even = lines[l] >> kShift & 0x0303030303030303, odd = lines[l + 1] >> kShift & 0x0303030303030303;
      const uint64_t four = even | odd << 4;
      put(out + kPlane + 32 * l, paired(four | four >> 14));
    }
  }
  if constexpr (kBits == 3 || kBits == 5) {
    constexpr size_t kMasks = kBits == 3 ? 128 : 256;
    for (size_t l = 0; l < 4; ++l) {
      const int top = paired_bits(lines[l] >> (kBits - 1));  // four of low codes, four of high ones
      uint8_t* masks = reinterpret_cast<uint8_t*>(block) + kMasks + 16 * l + n / 2;
      masks[0] = static_cast<uint8_t>(masks[0] | (top & 15) << (4 * (n % 2)));
      masks[8] = static_cast<uint8_t>(masks[8] | (top >> 4) << (4 * (n % 2)));
    }
  }
}

template <int kBits>
void pack_codes(const PackedMatrix& m, std::span<const CodedRow> rows, std::byte* block) {
  const auto cols = static_cast<size_t>(m.cols);
  for (size_t begin = 0; begin < cols; begin += kBlockInputs, block += m.layout.block_bytes) {
    for (size_t n = 0; n < rows.size(); ++n) {
      const std::span<const uint8_t> codes = rows[n].codes.subspan(begin);
      if (codes.size() >= kBlockInputs) {
        write_codes<kBits>(codes.data(), n, block);
      } else {
        std::array<uint8_t, kBlockInputs> last{};
        std::ranges::copy(codes, last.begin());
        write_codes<kBits>(last.data(), n, block);
      }
    }
  }
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

// T: as wide as a value.
template <class T>
void pack_values(const PackedMatrix& m, std::span<const std::byte* const> rows, std::byte* panel) {
  const bool pairs = m.format.codes == Codes::kBf16;
  const size_t cols = static_cast<size_t>(m.cols);
  const auto index = [&](size_t k, size_t n) { return pairs ? k / 2 * 32 + 2 * n + k % 2 : k * kPanel + n; };
  constexpr size_t kTile = 64 / sizeof(T);  // a cache line of each row
  for (size_t begin = 0; begin < cols; begin += kTile) {
    for (size_t n = 0; n < rows.size(); ++n) {
      for (size_t k = begin; k < std::min(cols, begin + kTile); ++k)
        std::memcpy(panel + index(k, n) * sizeof(T), rows[n] + k * sizeof(T), sizeof(T));
    }
  }
}

void pack_floats(const PackedMatrix& m, std::span<const std::byte* const> rows, std::byte* panel) {
  if (m.format.codes == Codes::kF32) return pack_values<uint32_t>(m, rows, panel);
  pack_values<uint16_t>(m, rows, panel);
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
      parts.scale = f16(at.supers, super) * i8(at.scales, group);
      break;
  }
  switch (m.format.zeros) {
    case ZeroKind::kConstant:
      break;
    case ZeroKind::kF16:
      parts.minimum = f16(at.minima, group);
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

PanelLayout panel_layout(const PanelFormat& format, int blocks) {
  const PanelCounts counts = panel_counts(format, blocks);
  PanelLayout at{};
  size_t end = 0;
  const auto part = [&end](size_t entries, size_t entry_bytes) {
    const size_t begin = end;
    end = round_up(end + entries * entry_bytes * kPanel, 64);
    return begin;
  };
  at.supers = part(format.scale == ScaleKind::kSuper ? counts.supers : 0, 2);
  at.super_minima = part(format.zeros == ZeroKind::kSuper ? counts.supers : 0, 2);
  at.scales = part(counts.groups, scale_bytes(format.scale));
  at.minima = part(counts.groups, minimum_bytes(format.zeros));
  at.block_bytes = code_block_bytes(format.codes);
  at.codes = end;
  at.bytes = round_up(end + static_cast<size_t>(blocks) * at.block_bytes, 64);
  return at;
}

PackedMatrix describe_packed(const PanelFormat& format, float factor, int rows, int cols) {
  assert(has_scales(format) ? format.group == 16 || (format.group > 0 && format.group % kBlockInputs == 0)
                            : format.group == 0);
  assert(!has_minima(format) || format.zero == 0);
  PackedMatrix m{.format = format, .factor = factor, .rows = rows, .cols = cols};
  m.layout = panel_layout(format, m.blocks());
  return m;
}

PackedMatrix describe_packed(TensorType type, int rows, int cols) {
  return describe_packed(panel_format(type), panel_factor(type), rows, cols);
}

PanelRows::PanelRows(const PanelFormat& format, int cols) {
  const PanelCounts counts = panel_counts(format, (cols + kBlockInputs - 1) / kBlockInputs);
  const auto inputs = round_up(static_cast<size_t>(cols), kSuperInputs);
  const bool has_supers = format.scale == ScaleKind::kSuper;
  const size_t code_bytes = std::max(1, code_bits(format.codes) / 8);
  codes_.resize(kPanel * inputs * code_bytes);
  scales_.resize(kPanel * counts.groups);
  minima_.resize(has_minima(format) ? kPanel * counts.groups : 0);
  supers_.resize(has_supers ? kPanel * counts.supers : 0);
  super_minima_.resize(format.zeros == ZeroKind::kSuper ? kPanel * counts.supers : 0);
  for (size_t n = 0; n < kPanel; ++n) {
    const auto part = [n](auto& all) { return std::span(all).subspan(n * (all.size() / kPanel), all.size() / kPanel); };
    rows_[n] = {part(codes_), part(scales_), part(minima_), part(supers_), part(super_minima_)};
    rows_[n].codes = rows_[n].codes.first(static_cast<size_t>(cols) * code_bytes);
  }
}

void pack_panel(const PackedMatrix& m, std::span<const CodedRow> rows, std::byte* panel) {
  const PanelLayout& at = m.layout;
  std::memset(panel, 0, at.bytes);
  if (!has_scales(m.format)) {
    std::array<const std::byte*, kPanel> bytes;
    for (size_t n = 0; n < rows.size(); ++n) bytes[n] = std::as_bytes(rows[n].codes).data();
    return pack_floats(m, std::span(bytes).first(rows.size()), panel);
  }
  const auto put = [panel](size_t part, size_t entry_bytes, size_t n, const auto& values) {
    std::byte* out = panel + part + n * entry_bytes;
    for (const auto value : values) {
      std::memcpy(out, &value, entry_bytes);  // little-endian: the low bytes
      out += kPanel * entry_bytes;
    }
  };
  for (size_t n = 0; n < rows.size(); ++n) {
    const CodedRow& row = rows[n];
    put(at.supers, 2, n, row.supers);
    put(at.super_minima, 2, n, row.super_minima);
    put(at.scales, scale_bytes(m.format.scale), n, row.scales);
    put(at.minima, minimum_bytes(m.format.zeros), n, row.minima);
  }
  std::byte* codes = panel + at.codes;
  switch (code_bits(m.format.codes)) {
    case 2:
      return pack_codes<2>(m, rows, codes);
    case 3:
      return pack_codes<3>(m, rows, codes);
    case 4:
      return pack_codes<4>(m, rows, codes);
    case 5:
      return pack_codes<5>(m, rows, codes);
    case 6:
      return pack_codes<6>(m, rows, codes);
    default:
      return pack_codes<8>(m, rows, codes);
  }
}

void pack_panel(const PackedMatrix& m, TensorType type, std::span<const std::byte* const> rows, PanelRows& scratch,
                std::byte* panel) {
  if (!has_scales(m.format)) {
    std::memset(panel, 0, m.layout.bytes);
    return pack_floats(m, rows, panel);
  }
  const std::span<const CodedRow> coded = scratch.first(rows.size());
  for (size_t n = 0; n < rows.size(); ++n) read_row(type, rows[n], coded[n]);
  pack_panel(m, coded, panel);
}

void pack_panels(const PackedMatrix& m, TensorType type, std::span<const std::byte> source, std::byte* data, int begin,
                 int end) {
  const TensorTypeInfo& t = info(type);
  const size_t row_bytes = static_cast<size_t>(m.cols) / t.block_elements * t.block_bytes;
  assert(source.size() == row_bytes * static_cast<size_t>(m.rows));
  PanelRows scratch(m.format, m.cols);
  for (int p = begin; p < end; ++p) {
    std::array<const std::byte*, kPanel> rows;
    const auto count = static_cast<size_t>(std::min(kPanel, m.rows - p * kPanel));
    for (size_t n = 0; n < count; ++n) rows[n] = source.data() + (static_cast<size_t>(p) * kPanel + n) * row_bytes;
    pack_panel(m, type, std::span(rows).first(count), scratch, data + static_cast<size_t>(p) * m.layout.bytes);
  }
}

bool is_finite(const PackedMatrix& m, int panel) {
  const std::byte* data = m.panel(panel);
  const PanelLayout& at = m.layout;
  constexpr uint64_t kF16 = 0x7C00, kBf16 = 0x7F80, kF32 = 0x7F80'0000;  // exponents
  const size_t code_bytes = static_cast<size_t>(m.blocks()) * at.block_bytes;
  const PanelCounts counts = panel_counts(m.format, m.blocks());
  const auto f16s = [&](size_t part, size_t entries) {
    return all_finite<uint16_t>(data + part, entries * kPanel * sizeof(uint16_t), kF16);
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
  if (m.format.zeros == ZeroKind::kSuper && !f16s(at.super_minima, counts.supers)) return false;
  switch (m.format.scale) {
    case ScaleKind::kF16:
      return f16s(at.scales, counts.groups);
    case ScaleKind::kSuper:
      return f16s(at.supers, counts.supers);
    case ScaleKind::kF32:
      return all_finite<uint32_t>(data + at.scales, counts.groups * kPanel * sizeof(float), kF32);
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
