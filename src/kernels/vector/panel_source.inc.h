// The codes of a product: those of a packed panel, decoded register by register (PackedCodes), or some of its blocks,
// decoded in advance for many rows (ByteBlocks). Also the prefetching of panels.
#pragma once

#include "kernels/kernels.h"
#include "kernels/vector/alphabet.h"

namespace quire::QUIRE_ISA {
namespace {

// Rows whose sums a product keeps in memory while it reads a panel: those of two panels take 8 KiB of the L1 cache.
inline constexpr int kTileRows = 64;
// Panels whose sums a call keeps.
inline constexpr int kMostPanelsAtOnce = 4;

// Clears the sums [panels][kTileRows][kPanel] of `rows` rows.
QUIRE_INLINE void clear_sums(float* sums, int panels, int rows) {
  for (int p = 0; p < panels; ++p) {
    for (int i = 0; i < rows * kPanel; i += kWidth) store(sums + p * kTileRows * kPanel + i, Floats::all(0.0f));
  }
}

// A line of a block for kWidth outputs: bytes of inputs {0, 4, 1, 5} and {2, 6, 3, 7}.
struct LinePair {
  Ints low, high;
};

// The integers of a table as signed bytes.
QUIRE_INLINE Ints byte_table(const std::array<float, 16>& table) {
  return repeat(to_bytes(to_int(Floats16::load(table.data()))));
}

inline constexpr int kFoldedZero = 124;  // 31 * 4: codes of 3 bits times scales, plus this, are at most 252

// The integer scales of 16 inputs of a panel's outputs, times what codes of 2 or 3 bits stand for, as bytes plus zero().
// All of them fit in a byte (PanelFormat::scale_range()).
struct ScaledCodes {
  Ints low;   // 4 bytes for each output: of codes 0 .. 3
  Ints four;  // 4 times the scale: what bit 2 adds

  // scales: 16 int8s. code_zero: the zero point of the codes.
  ScaledCodes(const std::byte* scales, int half, int code_zero, int zero) {
    const Ints scale = integers_i8(scales + half * kWidth);
    const Ints all = look_up(scale, repeat(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)));
    const Ints once = band(all, Ints::all(static_cast<int32_t>(0xff00ff00))),
               twice = band(all, Ints::all(static_cast<int32_t>(0xffff0000)));
    four = add_bytes(add_bytes(all, all), add_bytes(all, all));
    low = add_bytes(add_bytes(once, all_bytes(zero)), add_bytes(twice, twice));
    if (code_zero == 4) low = sub_bytes(low, four);
  }
};

// The codes of a packed panel, from a block on.
template <Codes kCodesOf>
class PackedCodes {
 public:
  static constexpr Codes kCodes = kCodesOf;
  static constexpr int kBits = code_bits(kCodes);
  // Bytes are signed, or have kSignedOffset added.
  static constexpr bool kSigned = kCodes == Codes::kI8 || kCodes == Codes::kTable4;
  static constexpr bool kUnsigned = !kSigned;
  static constexpr bool kFolded = false;                                 // scales are not part of the bytes
  static constexpr int kByteBits = kSigned ? 8 : kBits < 4 ? 4 : kBits;  // kBits of multiply()

  [[gnu::always_inline]] PackedCodes(const PackedMatrix& m, int p, int block)
      : codes_(m.panel(p) + m.layout.codes + static_cast<size_t>(block) * code_block_bytes(kCodes)),
        zero_(kSigned ? kSignedOffset : m.format.zero) {
    if constexpr (kCodes == Codes::kTable4) {
      table_ = byte_table(m.format.table);
      if constexpr (kSignedOffset != 0) table_ = flip_signs(table_);
    }
  }

  // Of the panel that lies this many bytes further on.
  [[gnu::always_inline]] PackedCodes shifted(size_t bytes) const {
    PackedCodes other = *this;
    other.codes_ += bytes;
    return other;
  }

  // Sums of products with these bytes are too large by zero() times the sum of the inputs.
  [[gnu::always_inline]] int zero() const { return zero_; }

  // The codes as they are.
  template <int kLine>
  [[gnu::always_inline]] LinePair raw(int b, int half) const {
    const std::byte* block = codes_ + static_cast<ptrdiff_t>(b) * static_cast<ptrdiff_t>(code_block_bytes(kCodes));
    const int at = half * kWidth * 4;
    if constexpr (kBits == 8) {
      return {Ints::load(block + 128 * kLine + at), Ints::load(block + 128 * kLine + 64 + at)};
    } else if constexpr (kBits < 4) {
      const Ints plane = Ints::load(block + 64 * (kLine / 2) + at);
      LinePair pair{two_bits<4 * (kLine % 2), 0>(plane), two_bits<4 * (kLine % 2) + 2, 0>(plane)};
      if constexpr (kBits == 3) pair = add_masks(pair, all_bytes(4), block + 128 + 16 * kLine + at / 8);
      return pair;
    } else {
      const Ints nibbles = Ints::load(block + 64 * kLine + at);
      LinePair pair{low_nibbles(nibbles), high_nibbles(nibbles)};
      if constexpr (kBits == 5) pair = add_masks(pair, all_bytes(16), block + 256 + 16 * kLine + at / 8);
      if constexpr (kBits == 6) {
        const Ints plane = Ints::load(block + 256 + 64 * (kLine / 2) + at);
        pair.low = bor(pair.low, two_bits<4 * (kLine % 2), 4>(plane));
        pair.high = bor(pair.high, two_bits<4 * (kLine % 2) + 2, 4>(plane));
      }
      return pair;
    }
  }
  // As multiply() takes them: with kSignedOffset, if signed.
  template <int kLine>
  [[gnu::always_inline]] LinePair line(int b, int half) const {
    const LinePair pair = raw<kLine>(b, half);
    if constexpr (kCodes == Codes::kTable4) return {look_up(table_, pair.low), look_up(table_, pair.high)};
    if constexpr (kCodes == Codes::kI8 && kSignedOffset != 0) return {flip_signs(pair.low), flip_signs(pair.high)};
    return pair;
  }

  // Codes of 2 or 3 bits, times the scales of their 16 inputs.
  template <int kLine>
  [[gnu::always_inline]] LinePair scaled(int b, int half, const ScaledCodes& of) const {
    const std::byte* block = codes_ + static_cast<ptrdiff_t>(b) * static_cast<ptrdiff_t>(code_block_bytes(kCodes));
    const Ints outputs = repeat(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));  // where each's 4 bytes begin
    const int at = half * kWidth * 4;
    const Ints plane = Ints::load(block + 64 * (kLine / 2) + at);
    const LinePair pair{look_up(of.low, bor(two_bits<4 * (kLine % 2), 0>(plane), outputs)),
                        look_up(of.low, bor(two_bits<4 * (kLine % 2) + 2, 0>(plane), outputs))};
    return kBits == 3 ? add_masks(pair, of.four, block + 128 + 16 * kLine + at / 8) : pair;
  }

 private:
  [[gnu::always_inline]] static LinePair add_masks(LinePair pair, Ints bytes, const std::byte* masks) {
    return {add_where(pair.low, bytes, masks), add_where(pair.high, bytes, masks + 8)};
  }

  const std::byte* codes_;
  int zero_;
  Ints table_{};
};

inline constexpr int kExpandedBlocks = 16;  // 8 KiB: together with eight rows of inputs, a quarter of an L1 cache

// Decoded blocks of a panel, as bytes of PackedCodes. kByteBitsOf: what multiply() is told of them.
template <int kByteBitsOf, bool kUnsignedOf>
class ByteBlocks {
 public:
  static constexpr int kByteBits = kByteBitsOf;
  static constexpr bool kUnsigned = kUnsignedOf;
  static constexpr bool kFolded = false;

  template <Codes kCodes>
  [[gnu::always_inline]] void fill(const PackedCodes<kCodes>& from, int blocks) {
    zero_ = from.zero();
    for (int b = 0; b < blocks; ++b) {
      for (int half = 0; half < kHalves; ++half) {
        std::byte* out = bytes_[b] + half * kWidth * 4;
        const auto put = [&]<int kLine>() __attribute__((always_inline)) {
          const LinePair pair = from.template line<kLine>(b, half);
          store(out + 128 * kLine, pair.low), store(out + 128 * kLine + 64, pair.high);
        };
        put.template operator()<0>(), put.template operator()<1>();
        put.template operator()<2>(), put.template operator()<3>();
      }
    }
  }

  [[gnu::always_inline]] int zero() const { return zero_; }
  template <int kLine>
  [[gnu::always_inline]] LinePair line(int b, int half) const {
    const std::byte* at = bytes_[b] + 128 * kLine + half * kWidth * 4;
    return {Ints::load(at), Ints::load(at + 64)};
  }

 protected:
  alignas(64) std::byte bytes_[kExpandedBlocks][kBlockInputs * kPanel];
  int zero_ = 0;
};

// Decoded blocks of codes that are multiplied by their integer scales.
class FoldedBlocks : public ByteBlocks<8, true> {
 public:
  static constexpr bool kFolded = true;

  // begin: the block of the panel that `from` begins with, the first under a float16.
  template <Codes kCodes>
  [[gnu::always_inline]] void fill(const PackedMatrix& m, int p, int begin, const PackedCodes<kCodes>& from,
                                   int blocks) {
    zero_ = kCodes == Codes::kU3 ? kFoldedZero : 0;
    const std::byte* scales = m.panel(p) + m.layout.scales + static_cast<ptrdiff_t>(begin) * 2 * kPanel;
    for (int b = 0; b < blocks; ++b, scales += ptrdiff_t{2} * kPanel) {
      for (int half = 0; half < kHalves; ++half) {
        const ScaledCodes first(scales, half, from.zero(), zero_), second(scales + kPanel, half, from.zero(), zero_);
        std::byte* out = bytes_[b] + half * kWidth * 4;
        const auto put = [&]<int kLine>() __attribute__((always_inline)) {
          const LinePair pair = from.template scaled<kLine>(b, half, kLine < 2 ? first : second);
          store(out + 128 * kLine, pair.low), store(out + 128 * kLine + 64, pair.high);
        };
        put.template operator()<0>(), put.template operator()<1>();
        put.template operator()<2>(), put.template operator()<3>();
      }
    }
  }
};

// Prefetches bytes of panels, spread evenly over `calls` calls of next() during a product. So reads and multiplications
// overlap instead of waiting for each other. kStreams: panels that are read at the same time.
template <int kStreams = 1>
class Prefetch {
 public:
  // For a product that reads panels p .. p + kStreams - 1 once: a constant distance ahead in each, in bytes; at its end, that
  // far into the panel that follows kStreams panels later.
  QUIRE_INLINE Prefetch ahead(const PackedMatrix& m, int p, int calls, size_t distance) {
    const size_t bytes = m.layout.bytes, begin = m.layout.codes + distance, later = begin / bytes * kStreams;
    Prefetch prefetch(bytes, calls);
    for (int i = 0; i < kStreams; ++i)
      prefetch.at_[i] = reinterpret_cast<const char*>(m.panel(p + i)) + later * bytes + begin % bytes;
    prefetch.turn_ = prefetch.at_[0] + bytes - begin % bytes;
    prefetch.jump_ = (kStreams - 1) * bytes;
    return prefetch;
  }
  // For a product that reads its panels several times: the next panels, an equal part in each stream.
  QUIRE_INLINE Prefetch next_panels(const PackedMatrix& m, int p, int panels, int calls) {
    const size_t bytes = m.layout.bytes * static_cast<size_t>(panels), part = bytes / kStreams;
    Prefetch prefetch(part, calls);
    for (int i = 0; i < kStreams; ++i)
      prefetch.at_[i] = reinterpret_cast<const char*>(m.panel(p)) + bytes + static_cast<size_t>(i) * part;
    return prefetch;
  }
  [[gnu::always_inline]] void next() {
    QUIRE_UNROLL
    for (const char*& at : at_) {
      const char* end = at + step_;
      for (const char* p = at; p < end; p += 64) _mm_prefetch(p, _MM_HINT_T0);
      at = end;
    }
    if constexpr (kStreams > 1) {
      if (at_[0] >= turn_) {
        QUIRE_UNROLL
        for (const char*& at : at_) at += jump_;
        jump_ = 0;
      }
    }
  }

 private:
  [[gnu::always_inline]] Prefetch(size_t bytes, int calls) : step_(bytes / static_cast<size_t>(calls)) {}

  const char* at_[kStreams];
  size_t step_, jump_ = 0;
  const char* turn_ = nullptr;  // where the first panel ends
};

}  // namespace
}  // namespace quire::QUIRE_ISA
