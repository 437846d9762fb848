// The weights of a product: a packed panel, decoded register by register (Packed), or some of its blocks, decoded in
// advance for many rows (Expanded). Also the prefetching of panels.
#pragma once

#include "kernels/kernels.h"
#include "kernels/x86/quants.h"

namespace quire::QUIRE_ISA {
namespace {

// Rows whose sums a product keeps in memory while it reads a panel: those of two panels take 8 KiB of the L1 cache.
inline constexpr int kTileRows = 64;

// The quants of a line of a block for kWidth outputs: from low and high nibbles (8 bits: from two lines).
struct LinePair {
  Ints low, high;
};

// The zero point of a type's unsigned bytes: sums of products are too large by kZero times the sum of the inputs.
template <TensorType kType>
inline constexpr int kZero = packed_format(kType).bits == 8 ? kSignedOffset : packed_format(kType).zero;

// A packed panel of a quantized type.
template <TensorType kType>
class Packed {
 public:
  static constexpr PackedFormat kFormat = packed_format(kType);
  static constexpr int kBits = kFormat.bits, kGroup = kFormat.group;
  static constexpr bool kHasMinimum = kFormat.has_minimum;

  [[gnu::always_inline]] Packed(const PackedMatrix& m, int p)
      : panel_(m.panel(p)),
        supers_(panel_ + m.layout.supers),
        super_minima_(panel_ + m.layout.super_minima),
        scales_(panel_ + m.layout.scales),
        minima_(panel_ + m.layout.minima),
        quants_(panel_ + m.layout.quants) {}

  [[gnu::always_inline]] int zero() const { return kZero<kType>; }

  template <int kLine>
  [[gnu::always_inline]] LinePair line(int b, int half) const {
    constexpr int kBlockBytes = kBits == 4 ? 256 : kBits == 5 ? 320 : kBits == 6 ? 384 : 512;
    const std::byte* block = quants_ + static_cast<ptrdiff_t>(b) * kBlockBytes;
    const int at = half * kWidth * 4;
    if constexpr (kBits == 8) {
      const LinePair pair{Ints::load(block + 128 * kLine + at), Ints::load(block + 128 * kLine + 64 + at)};
      if constexpr (kSignedOffset == 0) return pair;
      return {flip_signs(pair.low), flip_signs(pair.high)};
    }
    const Ints raw = Ints::load(block + 64 * kLine + at);
    LinePair pair{low_nibbles(raw), high_nibbles(raw)};
    if constexpr (kBits == 5) {
      pair.low = add_fifth_bits(pair.low, block + 256 + 16 * kLine + at / 8);
      pair.high = add_fifth_bits(pair.high, block + 256 + 16 * kLine + 8 + at / 8);
    } else if constexpr (kBits == 6) {
      const Ints plane = Ints::load(block + 256 + 64 * (kLine / 2) + at);
      pair.low = add_top_bits<4 * (kLine % 2)>(pair.low, plane);
      pair.high = add_top_bits<4 * (kLine % 2) + 2>(pair.high, plane);
    }
    return pair;
  }
  // Of group g of block b.
  [[gnu::always_inline]] Floats scale(int b, int g, int half) const {
    if constexpr (!kFormat.super_block) return scales_f16(entry(scales_, b, half, 2));
    const Floats super = scales_f16(entry(supers_, b / 8, half, 2));
    if constexpr (kGroup == 16) return mul(super, scales_i8(entry(scales_, 2 * b + g, half, 1)));
    return mul(super, scales_u8(entry(scales_, b, half, 1)));
  }
  [[gnu::always_inline]] Floats minimum(int b, int half) const {
    if constexpr (!kFormat.super_block) return scales_f16(entry(minima_, b, half, 2));
    const Floats m = mul(scales_f16(entry(super_minima_, b / 8, half, 2)), scales_u8(entry(minima_, b, half, 1)));
    return negate(m);
  }

 private:
  [[gnu::always_inline]] static const std::byte* entry(const std::byte* part, int i, int half, int bytes) {
    return part + static_cast<ptrdiff_t>((i * kPanel + half * kWidth) * bytes);
  }

  const std::byte *panel_, *supers_, *super_minima_, *scales_, *minima_, *quants_;
};

inline constexpr int kExpandedBlocks = 16;  // 13 KiB: together with eight rows of inputs, a quarter of an L1 cache

// Decoded blocks of a panel: quants as bytes, scales and minima as floats. kBitsOf: the bits of a quant.
template <int kBitsOf, int kGroupOf, bool kHasMinimumOf>
class Expanded {
 public:
  static constexpr int kBits = kBitsOf, kGroup = kGroupOf, kGroups = kBlockInputs / kGroup;
  static constexpr bool kHasMinimum = kHasMinimumOf;

  template <TensorType kType>
  [[gnu::always_inline]] void fill(const Packed<kType>& from, int begin, int end) {
    zero_ = from.zero();
    for (int b = begin; b < end; ++b) {
      for (int half = 0; half < kHalves; ++half) {
        std::byte* out = quants_[b - begin] + half * kWidth * 4;
        const auto put = [&]<int kLine>() __attribute__((always_inline)) {
          const LinePair pair = from.template line<kLine>(b, half);
          store(out + 128 * kLine, pair.low), store(out + 128 * kLine + 64, pair.high);
        };
        put.template operator()<0>(), put.template operator()<1>();
        put.template operator()<2>(), put.template operator()<3>();
        for (int g = 0; g < kGroups; ++g) store(scales_[b - begin][g] + half * kWidth, from.scale(b, g, half));
        if constexpr (kHasMinimum) store(minima_[b - begin] + half * kWidth, from.minimum(b, half));
      }
    }
  }

  [[gnu::always_inline]] int zero() const { return zero_; }
  template <int kLine>
  [[gnu::always_inline]] LinePair line(int b, int half) const {
    const std::byte* at = quants_[b] + 128 * kLine + half * kWidth * 4;
    return {Ints::load(at), Ints::load(at + 64)};
  }
  [[gnu::always_inline]] Floats scale(int b, int g, int half) const {
    return Floats::load(scales_[b][g] + half * kWidth);
  }
  [[gnu::always_inline]] Floats minimum(int b, int half) const { return Floats::load(minima_[b] + half * kWidth); }

 private:
  alignas(64) std::byte quants_[kExpandedBlocks][kBlockInputs * kPanel];
  alignas(64) float scales_[kExpandedBlocks][kGroups][kPanel];
  alignas(64) float minima_[kHasMinimum ? kExpandedBlocks : 1][kPanel];
  int zero_ = 0;
};

// Prefetches the bytes of a panel, spread evenly over `calls` calls of next() during a product. So reads and
// multiplications overlap instead of waiting for each other.
class Prefetch {
 public:
  // For a product that reads the panel once: a constant distance ahead. Near the end this reaches the next panel's
  // scales and first quants.
  QUIRE_INLINE Prefetch ahead(const PackedMatrix& m, int p, int calls) {
    return {m.panel(p) + m.layout.quants + kAhead, m.layout.bytes, calls};
  }
  // For a product that reads its panels several times: the next panels.
  QUIRE_INLINE Prefetch next_panels(const PackedMatrix& m, int p, int panels, int calls) {
    const size_t bytes = m.layout.bytes * static_cast<size_t>(panels);
    return {m.panel(p) + bytes, bytes, calls};
  }
  [[gnu::always_inline]] void next() {
    const char* end = at_ + step_;
    for (const char* p = at_; p < end; p += 64) _mm_prefetch(p, _MM_HINT_T0);
    at_ = end;
  }

 private:
  [[gnu::always_inline]] Prefetch(const std::byte* begin, size_t bytes, int calls)
      : at_(reinterpret_cast<const char*>(begin)), step_(bytes / static_cast<size_t>(calls)) {}

  static constexpr size_t kAhead = 8192;  // bytes: best of 2, 4 and 8 KiB for one row (docs/performance.md)
  const char* at_;
  size_t step_;
};

}  // namespace
}  // namespace quire::QUIRE_ISA
