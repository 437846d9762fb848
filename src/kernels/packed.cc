#include "kernels/packed.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

#include "base/half.h"

namespace quire {
namespace {

constexpr int kSuperBlock = 256;

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// One block of 32 quantized inputs of one output, as it is packed.
struct Block {
  uint8_t q[kBlockInputs] = {};
  uint16_t scale = 0, minimum = 0;              // float16, or
  uint8_t scales[2] = {}, minimum_integer = 0;  // integers under super_scale, super_minimum
  uint16_t super_scale = 0, super_minimum = 0;
};

// Byte 4 bits wide: element j in the low nibble of byte j, element j + 16 in the high one.
void read_nibbles(const std::byte* p, uint8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<uint8_t>(p[j]) & 15;
    q[j + 16] = static_cast<uint8_t>(p[j]) >> 4;
  }
}

void add_fifth_bits(uint32_t bits, uint8_t* q) {
  for (int j = 0; j < kBlockInputs; ++j) q[j] = static_cast<uint8_t>(q[j] | (bits >> j & 1) << 4);
}

// The 6-bit scale and minimum of group j in the 12 bytes of a Q4_K or Q5_K super-block.
void read_k_scale(const std::byte* scales, int j, Block& block) {
  const auto s = [&](int i) { return static_cast<unsigned>(scales[i]); };
  if (j < 4) {
    block.scales[0] = static_cast<uint8_t>(s(j) & 63);
    block.minimum_integer = static_cast<uint8_t>(s(j + 4) & 63);
  } else {
    block.scales[0] = static_cast<uint8_t>((s(j + 4) & 15) | (s(j - 4) >> 6) << 4);
    block.minimum_integer = static_cast<uint8_t>(s(j + 4) >> 4 | (s(j) >> 6) << 4);
  }
}

// Block `b` of a row that starts at `row`. Layouts: ggml-common.h of ggml.
Block read_block(TensorType type, const std::byte* row, int b) {
  Block out;
  const size_t block_bytes = info(type).block_bytes;
  if (!packed_format(type).super_block) {
    const std::byte* p = row + static_cast<size_t>(b) * block_bytes;
    out.scale = load<uint16_t>(p);
    switch (type) {
      case TensorType::Q4_0:
        read_nibbles(p + 2, out.q);
        break;
      case TensorType::Q4_1:
        out.minimum = load<uint16_t>(p + 2);
        read_nibbles(p + 4, out.q);
        break;
      case TensorType::Q5_0:
        read_nibbles(p + 6, out.q);
        add_fifth_bits(load<uint32_t>(p + 2), out.q);
        break;
      case TensorType::Q5_1:
        out.minimum = load<uint16_t>(p + 2);
        read_nibbles(p + 8, out.q);
        add_fifth_bits(load<uint32_t>(p + 4), out.q);
        break;
      default:
        std::memcpy(out.q, p + 2, kBlockInputs);
        break;  // Q8_0
    }
    return out;
  }
  const std::byte* p = row + static_cast<size_t>(b / 8) * block_bytes;
  const int j = b % 8;  // block in the super-block
  const auto byte = [&](int i) { return static_cast<unsigned>(p[i]); };
  if (type == TensorType::Q6_K) {  // ql[128] qh[64] scales[16] d
    const int half = j / 4, quarter = j % 4;
    for (int l = 0; l < kBlockInputs; ++l) {
      const unsigned low = byte(64 * half + 32 * (quarter % 2) + l) >> (quarter / 2 * 4) & 15;
      const unsigned high = byte(128 + 32 * half + l) >> (2 * quarter) & 3;
      out.q[l] = static_cast<uint8_t>(low | high << 4);
    }
    out.scales[0] = static_cast<uint8_t>(p[192 + 2 * j]);
    out.scales[1] = static_cast<uint8_t>(p[192 + 2 * j + 1]);
    out.super_scale = load<uint16_t>(p + 208);
    return out;
  }
  // Q4_K: d dmin scales[12] qs[128]; Q5_K has qh[32] before qs.
  out.super_scale = load<uint16_t>(p);
  out.super_minimum = load<uint16_t>(p + 2);
  read_k_scale(p + 4, j, out);
  const int quants = type == TensorType::Q5_K ? 48 : 16;
  for (int l = 0; l < kBlockInputs; ++l) {
    unsigned q = byte(quants + 32 * (j / 2) + l) >> (j % 2 * 4) & 15;
    if (type == TensorType::Q5_K) q |= (byte(16 + l) >> j & 1) << 4;
    out.q[l] = static_cast<uint8_t>(q);
  }
  return out;
}

// Input of byte `b` of the low or high nibbles (or 8-bit line 2l, 2l + 1) of line l.
constexpr int input_of(int line, int high, int b) { return 8 * line + kPairOrder[static_cast<size_t>(4 * high + b)]; }

// Where input k of output n lies: line, half (0 low, 1 high) and byte of the line.
struct Place {
  int line, high, byte;
};
constexpr Place place_of(int k, int n) {
  constexpr int kInverse[8] = {0, 2, 4, 6, 1, 3, 5, 7};  // position of input i in kPairOrder
  const int position = kInverse[k % 8];
  return {k / 8, position / 4, 4 * n + position % 4};
}

void write_quants(int bits, const Block& block, int n, std::byte* out) {
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  for (int line = 0; line < 4; ++line) {
    for (int high = 0; high < 2; ++high) {
      for (int b = 0; b < 4; ++b) {
        const unsigned q = block.q[input_of(line, high, b)];
        const int at = 4 * n + b;
        if (bits == 8) {
          bytes[64 * (2 * line + high) + at] = static_cast<uint8_t>(q);
          continue;
        }
        bytes[64 * line + at] = static_cast<uint8_t>(bytes[64 * line + at] | (q & 15) << (4 * high));
        if (bits == 5) {
          uint8_t& mask = bytes[256 + 8 * (2 * line + high) + at / 8];
          mask = static_cast<uint8_t>(mask | (q >> 4) << (at % 8));
        }
        if (bits == 6) {
          uint8_t& plane = bytes[256 + 64 * (line / 2) + at];
          plane = static_cast<uint8_t>(plane | (q >> 4) << (4 * (line % 2) + 2 * high));
        }
      }
    }
  }
}

unsigned read_quant(int bits, const std::byte* in, int k, int n) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(in);
  const auto [line, high, at] = place_of(k, n);
  if (bits == 8) return bytes[64 * (2 * line + high) + at];
  unsigned q = bytes[64 * line + at] >> (4 * high) & 15u;
  if (bits == 5) q |= (bytes[256 + 8 * (2 * line + high) + at / 8] >> (at % 8) & 1u) << 4;
  if (bits == 6) q |= (bytes[256 + 64 * (line / 2) + at] >> (4 * (line % 2) + 2 * high) & 3u) << 4;
  return q;
}

void pack_quantized(const PackedMatrix& m, std::span<const std::byte* const> rows, std::byte* panel) {
  const PackedFormat format = packed_format(m.type);
  const PanelLayout& at = m.layout;
  for (int n = 0; std::cmp_less(n, rows.size()); ++n) {
    const std::byte* row = rows[static_cast<size_t>(n)];
    const auto u16 = [&](size_t offset, int entry) {
      return reinterpret_cast<uint16_t*>(panel + offset) + entry * kPanel + n;
    };
    const auto u8 = [&](size_t offset, int entry) {
      return reinterpret_cast<uint8_t*>(panel + offset) + entry * kPanel + n;
    };
    for (int b = 0; b < m.blocks(); ++b) {
      const Block block = read_block(m.type, row, b);
      write_quants(format.bits, block, n, panel + at.quants + static_cast<size_t>(b) * at.block_bytes);
      if (format.super_block) {
        *u16(at.supers, b / 8) = block.super_scale;
        const int groups = kBlockInputs / format.group;
        for (int g = 0; g < groups; ++g) *u8(at.scales, b * groups + g) = block.scales[g];
        if (format.has_minimum) {
          *u16(at.super_minima, b / 8) = block.super_minimum;
          *u8(at.minima, b) = block.minimum_integer;
        }
      } else {
        *u16(at.scales, b) = block.scale;
        if (format.has_minimum) *u16(at.minima, b) = block.minimum;
      }
    }
  }
}

void pack_floats(const PackedMatrix& m, std::span<const std::byte* const> rows, std::byte* panel) {
  const size_t size = info(m.type).block_bytes;  // of one value
  for (int n = 0; std::cmp_less(n, rows.size()); ++n) {
    const std::byte* row = rows[static_cast<size_t>(n)];
    for (int k = 0; k < m.cols; ++k) {
      const int index = m.type == TensorType::BF16 ? k / 2 * 32 + 2 * n + k % 2 : k * kPanel + n;
      std::memcpy(panel + static_cast<size_t>(index) * size, row + static_cast<size_t>(k) * size, size);
    }
  }
}

float packed_float(const PackedMatrix& m, int row, int col) {
  const int n = row % kPanel;
  const std::byte* panel = m.panel(row / kPanel);
  switch (m.type) {
    case TensorType::BF16:
      return bf16_to_f32(load<uint16_t>(panel + (col / 2 * 32 + 2 * n + col % 2) * 2));
    case TensorType::F16:
      return f16_to_f32(load<uint16_t>(panel + (col * kPanel + n) * 2));
    default:
      return load<float>(panel + (static_cast<ptrdiff_t>(col) * kPanel + n) * 4);
  }
}

// The 8 quants of line `line` of output n, in the order of the inputs, signed if they have 8 bits.
std::array<int, 8> read_line(int bits, const std::byte* in, int line, int n) {
  const std::byte* low = in + 64 * (bits == 8 ? 2 * line : line) + 4 * n;
  std::array<int, 8> q;
  for (size_t i = 0; i < 4; ++i) {
    const auto a = static_cast<size_t>(kPairOrder[i]), b = static_cast<size_t>(kPairOrder[i + 4]);
    if (bits == 8) {
      q[a] = (static_cast<int>(low[i]) ^ 128) - 128;  // two's complement
      q[b] = (static_cast<int>(low[64 + i]) ^ 128) - 128;
      continue;
    }
    const auto byte = static_cast<unsigned>(low[i]);
    unsigned high_bits[2] = {};
    if (bits == 5) {
      const std::byte* masks = in + 256 + 16 * line + n / 2;
      for (size_t h = 0; h < 2; ++h)
        high_bits[h] = (static_cast<unsigned>(masks[8 * h]) >> (4 * (n % 2) + static_cast<int>(i)) & 1u) << 4;
    } else if (bits == 6) {
      const auto plane = static_cast<unsigned>(in[256 + 64 * (line / 2) + 4 * n + static_cast<int>(i)]);
      for (int h = 0; h < 2; ++h) high_bits[h] = (plane >> (4 * (line % 2) + 2 * h) & 3u) << 4;
    }
    q[a] = static_cast<int>((byte & 15u) | high_bits[0]);
    q[b] = static_cast<int>(byte >> 4 | high_bits[1]);
  }
  return q;
}

// The scale and minimum of the group that input `col` is in; q is left 0.
WeightParts packed_scales(const PackedMatrix& m, int row, int col) {
  const PanelLayout& at = m.layout;
  const std::byte* panel = m.panel(row / kPanel);
  const int n = row % kPanel, b = col / kBlockInputs;
  const auto f16 = [&](size_t offset, int entry) {
    return f16_to_f32(
        load<uint16_t>(panel + offset + (static_cast<size_t>(entry) * kPanel + static_cast<size_t>(n)) * 2));
  };
  const auto u8 = [&](size_t offset, int entry) {
    return static_cast<unsigned>(panel[offset + static_cast<size_t>(entry) * kPanel + static_cast<size_t>(n)]);
  };
  WeightParts parts{};
  if (!packed_format(m.type).super_block) {
    parts.scale = f16(at.scales, b);
    if (packed_format(m.type).has_minimum) parts.minimum = f16(at.minima, b);
  } else if (m.type == TensorType::Q6_K) {
    parts.scale = f16(at.supers, b / 8) * static_cast<float>(static_cast<int8_t>(u8(at.scales, col / 16)));
  } else {
    parts.scale = f16(at.supers, b / 8) * static_cast<float>(u8(at.scales, b));
    parts.minimum = -(f16(at.super_minima, b / 8) * static_cast<float>(u8(at.minima, b)));
  }
  return parts;
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

PanelLayout panel_layout(TensorType type, int blocks) {
  const PackedFormat format = packed_format(type);
  const auto count = static_cast<size_t>(blocks);
  PanelLayout at{};
  size_t end = 0;
  const auto part = [&end](size_t entries, size_t entry_bytes) {
    const size_t begin = end;
    end = round_up(end + entries * entry_bytes * kPanel, 64);
    return begin;
  };
  if (format.group == 0) {
    at.block_bytes = kBlockInputs * kPanel * static_cast<size_t>(format.bits) / 8;
  } else {
    const size_t supers = (count * kBlockInputs + kSuperBlock - 1) / kSuperBlock;
    const size_t groups = count * static_cast<size_t>(kBlockInputs / format.group);
    const size_t scale_bytes = format.super_block ? 1 : 2;
    at.supers = part(format.super_block ? supers : 0, 2);
    at.super_minima = part(format.super_block && format.has_minimum ? supers : 0, 2);
    at.scales = part(groups, scale_bytes);
    at.minima = part(format.has_minimum ? groups : 0, scale_bytes);
    at.block_bytes = format.bits == 4 ? 256 : format.bits == 5 ? 320 : format.bits == 6 ? 384 : 512;
  }
  at.quants = end;
  at.bytes = round_up(end + count * at.block_bytes, 64);
  return at;
}

PackedMatrix describe_packed(TensorType type, int rows, int cols) {
  assert(info(type).loadable);
  PackedMatrix m{.type = type, .rows = rows, .cols = cols};
  m.layout = panel_layout(type, m.blocks());
  return m;
}

void pack_panels(const PackedMatrix& m, std::span<const std::byte> source, std::byte* data, int begin, int end) {
  const TensorTypeInfo& type = info(m.type);
  const size_t row_bytes = static_cast<size_t>(m.cols) / type.block_elements * type.block_bytes;
  assert(source.size() == row_bytes * static_cast<size_t>(m.rows));
  for (int p = begin; p < end; ++p) {
    std::array<const std::byte*, kPanel> rows;
    const auto count = static_cast<size_t>(std::min(kPanel, m.rows - p * kPanel));
    for (size_t n = 0; n < count; ++n) rows[n] = source.data() + (static_cast<size_t>(p) * kPanel + n) * row_bytes;
    pack_panel(m, std::span(rows).first(count), data + static_cast<size_t>(p) * m.layout.bytes);
  }
}

void pack_panel(const PackedMatrix& m, std::span<const std::byte* const> rows, std::byte* panel) {
  std::memset(panel, 0, m.layout.bytes);
  is_quantized(m.type) ? pack_quantized(m, rows, panel) : pack_floats(m, rows, panel);
}

bool is_finite(const PackedMatrix& m, int panel) {
  const std::byte* data = m.panel(panel);
  const PanelLayout& at = m.layout;
  constexpr uint64_t kF16 = 0x7C00, kBf16 = 0x7F80, kF32 = 0x7F80'0000;  // exponents
  const PackedFormat format = packed_format(m.type);
  const auto blocks = static_cast<size_t>(m.blocks());
  if (format.group == 0) {
    const size_t bytes = blocks * at.block_bytes;
    if (m.type == TensorType::F32) return all_finite<uint32_t>(data + at.quants, bytes, kF32);
    return all_finite<uint16_t>(data + at.quants, bytes, m.type == TensorType::F16 ? kF16 : kBf16);
  }
  const size_t groups = format.super_block ? (blocks * kBlockInputs + kSuperBlock - 1) / kSuperBlock
                                           : blocks * static_cast<size_t>(kBlockInputs / format.group);
  const size_t bytes = groups * kPanel * sizeof(uint16_t);
  return all_finite<uint16_t>(data + (format.super_block ? at.supers : at.scales), bytes, kF16) &&
         (!format.has_minimum ||
          all_finite<uint16_t>(data + (format.super_block ? at.super_minima : at.minima), bytes, kF16));
}

WeightParts packed_parts(const PackedMatrix& m, int row, int col) {
  const PackedFormat format = packed_format(m.type);
  const std::byte* block =
      m.panel(row / kPanel) + m.layout.quants + static_cast<size_t>(col / kBlockInputs) * m.layout.block_bytes;
  const unsigned q = read_quant(format.bits, block, col % kBlockInputs, row % kPanel);
  WeightParts parts = packed_scales(m, row, col);
  parts.q = format.bits == 8 ? static_cast<int8_t>(q) : static_cast<int>(q) - format.zero;
  return parts;
}

float packed_weight(const PackedMatrix& m, int row, int col) {
  if (!is_quantized(m.type)) return packed_float(m, row, col);
  const WeightParts parts = packed_parts(m, row, col);
  const float value = parts.scale * static_cast<float>(parts.q);
  return packed_format(m.type).has_minimum ? value + parts.minimum : value;
}

void unpack_row(const PackedMatrix& m, int row, float* out) {
  if (!is_quantized(m.type)) {
    for (int col = 0; col < m.cols; ++col) out[col] = packed_float(m, row, col);
    return;
  }
  // A prompt's embeddings: block by block, so that scales are read once and quants a line at a time.
  const PackedFormat format = packed_format(m.type);
  const std::byte* quants = m.panel(row / kPanel) + m.layout.quants;
  for (int b = 0; b < m.blocks(); ++b, quants += m.layout.block_bytes) {
    const int begin = b * kBlockInputs, end = std::min(m.cols, begin + kBlockInputs);
    for (int col = begin; col < end; col += 8) {
      const WeightParts parts = packed_scales(m, row, col);
      std::array<int, 8> q = read_line(format.bits, quants, (col - begin) / 8, row % kPanel);
      for (int i = 0; i < 8 && col + i < end; ++i) {
        const float value = parts.scale * static_cast<float>(q[static_cast<size_t>(i)] - format.zero);
        out[col + i] = format.has_minimum ? value + parts.minimum : value;
      }
    }
  }
}

}  // namespace quire
