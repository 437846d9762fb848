#include "kernels/packed.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "kernels/panel_parts.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

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

// Whether two-level scales are in the format's range.
[[maybe_unused]] bool format_allows(const PanelFormat& format, std::span<const CodedRow> rows) {
  if (format.scale != ScaleKind::kSuper) return true;
  const IntegerRange range = scale_range(format);
  return std::ranges::all_of(rows, [&](const CodedRow& row) {
    return std::ranges::all_of(row.scales, [&](uint32_t bits) {
      const auto scale = static_cast<int8_t>(bits);
      return scale >= range.least && scale <= range.most;
    });
  });
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
  // What kernels are instantiated for (with_format(), vector/linear.inc.h).
  assert(format.group == 16 ? format.codes != Codes::kU5 : format.codes != Codes::kU6);
  assert(!has_two_levels(format) || (format.zeros == ZeroKind::kSuper) == (format.codes == Codes::kU2));
  assert(format.codes != Codes::kU5 || format.scale != ScaleKind::kF32);  // kUsualScales, vector/scales.inc.h
  assert(format.zeros != ZeroKind::kSuper || format.scale == ScaleKind::kSuper);
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
  assert(format_allows(m.format, rows));
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

}  // namespace quire
