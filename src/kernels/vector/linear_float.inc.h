// Products of panels with float activations (kF32; kBf16: rounded, kept in float32). For many rows, a few blocks of up
// to two panels are decoded to float32 once and multiplied in tiles of registers.
#pragma once

#include "kernels/vector/panel_source.inc.h"
#include "kernels/vector/scales.inc.h"

namespace quire::QUIRE_ISA {
namespace {

template <int kGroup>
QUIRE_INLINE float group_sum(const FloatBlock& x, int g) {
  return kGroup == 16 ? x.half_sums[g] : x.sum;
}

// What a step of a chain multiplies. kLine: steps per 8 inputs, alternately of the even and the odd chain.
struct InBlocks {  // inputs in FloatBlocks; row() is a row's block
  QUIRE_INLINE const FloatBlock& row(const std::byte* x, size_t x_stride, int row, int block) {
    return reinterpret_cast<const FloatBlock*>(x + static_cast<size_t>(row) * x_stride)[block];
  }
  template <int kGroup>
  QUIRE_INLINE float sum(const FloatBlock& x, int g) {
    return group_sum<kGroup>(x, g);
  }
  // low [rows][kPanel] += minima [blocks * groups][kPanel] times the sums of blocks [begin, begin + blocks).
  QUIRE_INLINE void add_minima(const float* minima, int begin, int blocks, int groups, const std::byte* x,
                               size_t x_stride, int rows, float* low) {
    add_low(
        minima, blocks, groups, x + static_cast<size_t>(begin) * sizeof(FloatBlock), x_stride, sizeof(FloatBlock), rows,
        low, [groups](const std::byte* block, int g) __attribute__((always_inline)) {
          const auto& input = *reinterpret_cast<const FloatBlock*>(block);
          return groups == 2 ? input.half_sums[g] : input.sum;
        });
  }
};
struct Singles : InBlocks {  // one input, in float32
  static constexpr int kLine = 8;
  QUIRE_INLINE Floats input(const FloatBlock& x, int step) { return Floats::all(x.x[step]); }
  QUIRE_INLINE Floats multiply(Floats x, Floats w, Floats sum) { return fma(x, w, sum); }
};
#if defined(__AVX512BF16__)
// VDPBF16PS does two FMAs in sequence, of the upper and then the lower halves, with subnormal numbers as zero: the next
// two links of a chain. (Intel documents this; AMD's gives the same bits.) So inputs 4j and 4j + 2, the next of the
// even chain, share a dword, and so do 4j + 1 and 4j + 3 of the odd one.
struct PairBlock {
  uint32_t pairs[kBlockInputs / 2];
  float unused[kBlockInputs / 2];
  float sum, half_sums[2];  // as in FloatBlock
  float unused_too;
};
static_assert(sizeof(PairBlock) == sizeof(FloatBlock) && offsetof(PairBlock, sum) == offsetof(FloatBlock, sum));
inline constexpr bool kBf16Pairs = true;
QUIRE_INLINE Ints pair(const FloatBlock& x, int i) {
  return Ints::all(static_cast<int32_t>(reinterpret_cast<const PairBlock&>(x).pairs[i]));
}
struct Pairs : InBlocks {  // two inputs and two weights
  static constexpr int kLine = 4;
  QUIRE_INLINE Ints input(const FloatBlock& x, int step) { return pair(x, step); }
  QUIRE_INLINE Floats multiply(Ints x, Floats w, Floats sum) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)x.v, (__m512bh)w.v)};
  }
};
struct SinglesOfPairs : InBlocks {  // one input, taken from its pair: for weights that bf16 cannot represent
  static constexpr int kLine = 8;
  QUIRE_INLINE Floats input(const FloatBlock& x, int step) {
    const Ints both = pair(x, step / 4 * 2 + step % 2);
    return bits(step % 4 < 2 ? band(both, Ints::all(static_cast<int32_t>(0xffff0000))) : shift_left<16>(both));
  }
  QUIRE_INLINE Floats multiply(Floats x, Floats w, Floats sum) { return fma(x, w, sum); }
};
#else
inline constexpr bool kBf16Pairs = false;
using Pairs = Singles;
using SinglesOfPairs = Singles;
#endif

// A tile: two registers of outputs times kFloatRows rows, each with an even and an odd chain: 24 registers on AVX-512
// (two panels), 12 on AVX2 (the halves of one). Each broadcast input feeds two FMAs, each loaded weight kFloatRows.
inline constexpr int kFloatRows = kWidth == 16 ? 6 : 3;
inline constexpr int kFloatPanels = 2 / kHalves;
inline constexpr int kFloatBlocks = 4;  // decoded together: 8 KiB per panel

// Decoded blocks of one panel: codes (or weights) [inputs][outputs], and scales.
struct FloatBlocks {
  alignas(64) float w[kFloatBlocks][kBlockInputs][kPanel];  // or pairs of bf16 [kBlockInputs / 2]
  alignas(64) float scales[kFloatBlocks * 2][kPanel];       // [blocks * groups]
};

// Codes of up to 4 bits are looked up where that takes one instruction.
template <Codes kCodes>
inline constexpr bool kLooksUp = kCodes == Codes::kFloat4 || (kWidth == 16 && code_bits(kCodes) <= 4);

// The codes of a panel as floats, less the zero point if kHasZero; of unquantized panels, the weights. kRounded: table
// entries are rounded to bf16.
template <Codes kCodes, bool kRounded, bool kHasZero = true>
class FloatCodes {
 public:
  [[gnu::always_inline]] FloatCodes(const PackedMatrix& m, int p, int block) : codes_(m, p, block) {
    if constexpr (kLooksUp<kCodes>) {
      table_ = Floats16::load(m.format.table.data());
      if constexpr (kCodes == Codes::kFloat4 && kRounded) table_ = to_bf16(table_);
      if constexpr (PackedCodes<kCodes>::kUnsigned && kCodes != Codes::kFloat4) {
        alignas(64) float codes[kPanel];
        for (int i = 0; i < kPanel; ++i) codes[i] = static_cast<float>(i - m.format.zero);
        table_ = Floats16::load(codes);
      }
    } else if constexpr (kCodes == Codes::kTable4) {
      bytes_ = byte_table(m.format.table);
    }
    zero_ = Ints::all(m.format.zero);
  }
  // Of the panel that lies this many bytes further on.
  [[gnu::always_inline]] FloatCodes shifted(size_t bytes) const {
    FloatCodes other = *this;
    other.codes_ = codes_.shifted(bytes);
    return other;
  }

  template <int kLine>
  [[gnu::always_inline]] void line(int b, int half, Floats (&w)[8]) const {
    LinePair pair = codes_.template raw<kLine>(b, half);  // bytes hold inputs 0, 4, 1, 5 and 2, 6, 3, 7
    if constexpr (kCodes == Codes::kTable4 && !kLooksUp<kCodes>)
      pair = {look_up(bytes_, pair.low), look_up(bytes_, pair.high)};
    w[0] = byte<0>(pair.low), w[4] = byte<1>(pair.low), w[1] = byte<2>(pair.low), w[5] = byte<3>(pair.low);
    w[2] = byte<0>(pair.high), w[6] = byte<1>(pair.high), w[3] = byte<2>(pair.high), w[7] = byte<3>(pair.high);
  }
#if defined(__AVX512BF16__)
  // As steps of Pairs: inputs (0, 2), (1, 3), (4, 6), (5, 7), the first of each in the upper half.
  template <int kLine>
  requires(kLooksUp<kCodes>) [[gnu::always_inline]] void pairs(int b, Floats (&w)[4]) const {
    const LinePair pair = codes_.template raw<kLine>(b, 0);
    const Ints even = {_mm512_mask_blend_epi16(0x55555555, shift_left<16>(pair.low).v, pair.high.v)},
               odd = {_mm512_mask_blend_epi16(0x55555555, pair.low.v, shift_right<16>(pair.high).v)};
    const __m512i words = _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(shift_right<16>(bits(table_)).v));
    const auto look_up = [words](__m512i codes) __attribute__((always_inline)) {  // the low 5 bits of each word count
      return Floats{_mm512_castsi512_ps(_mm512_permutexvar_epi16(codes, words))};
    };
    w[0] = look_up(even.v), w[1] = look_up(odd.v);
    w[2] = look_up(_mm512_srli_epi16(even.v, 8)), w[3] = look_up(_mm512_srli_epi16(odd.v, 8));
  }
#endif

 private:
  template <int kByte>
  [[gnu::always_inline]] Floats byte(Ints bytes) const {
    if constexpr (kLooksUp<kCodes>) {  // the low 4 bits count
      return look_up(table_, shift_right<8 * kByte>(bytes));
    } else if constexpr (kCodes == Codes::kE4M3) {
      return e4m3_byte<kByte>(bytes);
    } else if constexpr (PackedCodes<kCodes>::kSigned) {
      return Floats::of(shift_right_signed<24>(shift_left<24 - 8 * kByte>(bytes)));
    } else {
      const Ints code = band(shift_right<8 * kByte>(bytes), Ints::all(255));
      return Floats::of(kHasZero ? sub(code, zero_) : code);
    }
  }

  PackedCodes<kCodes> codes_;
  Ints bytes_{}, zero_;
  Floats16 table_{};
};
template <Codes kCodes, bool kRounded, bool kHasZero>
requires(code_bits(kCodes) > 8) class FloatCodes<kCodes, kRounded, kHasZero> {
 public:
  [[gnu::always_inline]] FloatCodes(const PackedMatrix& m, int p, int block)
      : weights_(m.panel(p) + m.layout.codes + static_cast<size_t>(block) * code_block_bytes(kCodes)) {}
  [[gnu::always_inline]] FloatCodes shifted(size_t bytes) const {
    FloatCodes other = *this;
    other.weights_ += bytes;
    return other;
  }

  template <int kLine>
  [[gnu::always_inline]] void line(int b, int half, Floats (&w)[8]) const {
    const std::byte* block = weights_ + static_cast<size_t>(b) * code_block_bytes(kCodes);
    const int outputs = half * kWidth;
    if constexpr (kCodes == Codes::kF32) {
      for (int i = 0; i < 8; ++i)
        w[i] = Floats::load(reinterpret_cast<const float*>(block) + (8 * kLine + i) * kPanel + outputs);
    } else if constexpr (kCodes == Codes::kF16) {
      for (int i = 0; i < 8; ++i) w[i] = scales_f16(block + ((8 * kLine + i) * kPanel + outputs) * 2);
    } else {
      for (int i = 0; i < 8; i += 2) {
        const Ints pair = Ints::load(block + ((8 * kLine + i) * kPanel + 2 * outputs) * 2);
        w[i] = bits(shift_left<16>(pair));
        w[i + 1] = bits(band(pair, Ints::all(static_cast<int32_t>(0xffff0000))));
      }
    }
  }

#if defined(__AVX512BF16__)
  template <int kLine>
  requires(kCodes == Codes::kBf16) [[gnu::always_inline]] void pairs(int b, Floats (&w)[4]) const {
    const std::byte* line = weights_ + static_cast<size_t>(b) * code_block_bytes(kCodes) + 256 * kLine;
    for (int i = 0; i < 4; i += 2, line += 128) {
      const Ints first = Ints::load(line), second = Ints::load(line + 64);
      w[i] = bits(Ints{_mm512_mask_blend_epi16(0x55555555, shift_left<16>(first).v, second.v)});
      w[i + 1] = bits(Ints{_mm512_mask_blend_epi16(0x55555555, first.v, shift_right<16>(second).v)});
    }
  }
#endif

 private:
  const std::byte* weights_;
};

// A line as steps of the chains.
template <class Steps, int kLine, class From>
QUIRE_INLINE void step_line(const From& from, int b, int half, Floats (&steps)[Steps::kLine]) {
  if constexpr (Steps::kLine == 8) {
    from.template line<kLine>(b, half, steps);
  } else if constexpr (requires { from.template pairs<kLine>(b, steps); }) {
    from.template pairs<kLine>(b, steps);
  } else {  // bf16 numbers: their lower halves are zero
    Floats w[8];
    from.template line<kLine>(b, half, w);
    for (int i = 0; i < 4; ++i) {
      const int first = i / 2 * 4 + i % 2;
      steps[i] = bits(bor(bits(w[first]), shift_right<16>(bits(w[first + 2]))));
    }
  }
}

// Few rows: half h of blocks [begin, begin + blocks) of kPanels panels, decoded in registers. kGroup 0: weights without
// scales. Adds to the sums of rows [row, row + kRows), out [kPanels][kTileRows][kPanel].
template <class Steps, int kGroup, int kRows, int kPanels, class From, class Scales>
QUIRE_INLINE void float_half(const From& first, size_t panel_bytes, const Scales* scales, int h, int begin, int blocks,
                             const std::byte* x, size_t x_stride, int row, float* out, float* lows,
                             Prefetch<kPanels>& prefetch) {
  constexpr int kGroups = kGroup == 16 ? 2 : 1;
  Floats acc[kPanels][kRows], low[kPanels][kRows];
  const auto place = [&](int p, int r) __attribute__((always_inline)) {
    return (p * kTileRows + row + r) * kPanel + h * kWidth;
  };
  QUIRE_UNROLL
  for (int p = 0; p < kPanels; ++p) {
    QUIRE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      acc[p][r] = Floats::load(out + place(p, r));
      low[p][r] = Floats::all(0.0f);
    }
  }
  for (int b = 0; b < blocks; ++b) {
    prefetch.next();
    const auto inputs = [&](int r) __attribute__((always_inline))->decltype(auto) {
      return Steps::row(x, x_stride, row + r, begin + b);
    };
    Floats even[kPanels][kRows], odd[kPanels][kRows];
    const auto begin_group = [&]() __attribute__((always_inline)) {
      QUIRE_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        QUIRE_UNROLL
        for (int r = 0; r < kRows; ++r) even[p][r] = odd[p][r] = Floats::all(0.0f);
      }
    };
    const auto add_line = [&]<int kLine>() __attribute__((always_inline)) {
      Floats w[kPanels][Steps::kLine];
      QUIRE_UNROLL
      for (int p = 0; p < kPanels; ++p)
        step_line<Steps, kLine>(first.shifted(static_cast<size_t>(p) * panel_bytes), b, h, w[p]);
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        QUIRE_UNROLL
        for (int i = 0; i < Steps::kLine; i += 2) {
          const int step = Steps::kLine * kLine + i;
          const auto of_even = Steps::input(inputs(r), step), of_odd = Steps::input(inputs(r), step + 1);
          QUIRE_UNROLL
          for (int p = 0; p < kPanels; ++p) {
            even[p][r] = Steps::multiply(of_even, w[p][i], even[p][r]);
            odd[p][r] = Steps::multiply(of_odd, w[p][i + 1], odd[p][r]);
          }
        }
      }
    };
    const auto end_group = [&](int g) __attribute__((always_inline)) {
      QUIRE_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        QUIRE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const Floats sum = add(even[p][r], odd[p][r]);
          if constexpr (kGroup == 0) {
            acc[p][r] = add(acc[p][r], sum);
          } else {
            acc[p][r] = fma(sum, scales[p].template scale<kGroup>(b, g, h), acc[p][r]);
          }
        }
        if constexpr (Scales::kMinima) {
          const Floats minimum = scales[p].template minimum<kGroup>(b, g, h);
          QUIRE_UNROLL
          for (int r = 0; r < kRows; ++r)
            low[p][r] = fma(minimum, Floats::all(Steps::template sum<kGroup>(inputs(r), g)), low[p][r]);
        }
      }
    };
    begin_group();
    add_line.template operator()<0>();
    add_line.template operator()<1>();
    if constexpr (kGroups == 2) end_group(0), begin_group();
    add_line.template operator()<2>();
    add_line.template operator()<3>();
    end_group(kGroups - 1);
  }
  QUIRE_UNROLL
  for (int p = 0; p < kPanels; ++p) {
    QUIRE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      store(out + place(p, r), acc[p][r]);
      if constexpr (Scales::kMinima) store(lows + place(p, r), low[p][r]);
    }
  }
}

// low [rows][kPanel] += minima of blocks [begin, end) times the sums of the inputs x.
template <class Steps>
QUIRE_INLINE void add_float_low(const PackedMatrix& m, int p, int begin, int end, const float* scales,
                                const std::byte* x, size_t x_stride, int rows, float* low) {
  alignas(64) float minima[2 * kScaleBlocks * kPanel];
  decode_minima(m, p, begin, end, scales, minima);
  Steps::add_minima(minima, begin, end - begin, groups_in_block(m.format), x, x_stride, rows, low);
}

// Up to this many rows, decoding the weights again for every four rows is cheaper than storing them decoded.
inline constexpr int kFewFloatRows = 8;
// Panels in flight: their chains hide each other's latency. Only for the most usual codes, and where registers are free
// for the sums of four panels and two rows.
constexpr int most_streams(Codes codes, int group) {
  const bool usual = codes == Codes::kBf16 ||
                     (group == kBlockInputs && (codes == Codes::kU4 || codes == Codes::kI8 || codes == Codes::kTable4));
  return usual && kWidth == 16 ? 4 : 1;
}

// Products of kPanels panels p .. with rows [0, rows), a few at a time.
template <class Steps, Codes kCodes, int kGroup, int kPanels>
void float_stream(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, int rows, size_t ahead, float* out,
                  float* low) {
  constexpr int kMostRows = kPanels == 4 ? 2 : 4;
  alignas(64) float scales[kGroup == 0 ? 1 : 2 * kScaleBlocks * kPanel];
  const int groups = (rows + kMostRows - 1) / kMostRows, blocks = m.blocks(), calls = blocks * groups * kHalves;
  using Streams = Prefetch<kPanels>;
  Streams prefetch =
      groups * kHalves == 1 ? Streams::ahead(m, p, calls, ahead) : Streams::next_panels(m, p, kPanels, calls);
  const auto run = [&]<class Scales>(const Scales* of, int begin, int end) __attribute__((always_inline)) {
    const FloatCodes<kCodes, kGroup != 0, !Scales::kMinima> from(m, p, begin);  // with minima, zero is 0
    for (int i = 0; i < groups; ++i) {
      const int row = rows * i / groups, count = rows * (i + 1) / groups - row;
      with_count<kMostRows>(count, [&]<int kRows>() {
        for (int h = 0; h < kHalves; ++h) {
          float_half<Steps, kGroup, kRows, kPanels>(from, m.layout.bytes, of, h, begin, end - begin, x, x_stride, row,
                                                    out, low, prefetch);
        }
      });
    }
  };
  if constexpr (kGroup == 0) {
    const DecodedScales<false> none[kPanels] = {};
    return run(none, 0, blocks);
  } else {
    if (with_panel_scales<kCodes, kGroup, true>(
            m, p, [&]<class Scales>(const Scales& first) __attribute__((always_inline)) {
              if constexpr (kPanels == 1) return run(&first, 0, blocks);
              if constexpr (kPanels == 2) {
                const Scales all[] = {first, {m, p + 1}};
                return run(all, 0, blocks);
              }
              if constexpr (kPanels == 4) {
                const Scales all[] = {first, {m, p + 1}, {m, p + 2}, {m, p + 3}};
                return run(all, 0, blocks);
              }
            }))
      return;
  }
  if constexpr (kGroup != 0 && kCodes != Codes::kU5 && kCodes != Codes::kU6) {  // these have usual scales only
    if constexpr (kPanels == 1) {
      for (int b = 0; b < blocks; b += kScaleBlocks) {
        const int end = b + kScaleBlocks < blocks ? b + kScaleBlocks : blocks;
        decode_scales(m, p, b, end, scales);
        if (has_minima(m.format)) add_float_low<Steps>(m, p, b, end, scales, x, x_stride, rows, low);
        const DecodedScales<false> decoded{scales, nullptr};
        run(&decoded, b, end);
      }
    } else {  // unusual scales
      for (int i = 0; i < kPanels; ++i) {
        float_stream<Steps, kCodes, kGroup, 1>(m, p + i, x, x_stride, rows, ahead, out + i * kTileRows * kPanel,
                                               low ? low + i * kTileRows * kPanel : nullptr);
      }
    }
  }
}

// Decodes blocks [begin, end) of panel p; with kDequantize, to weights.
template <class Steps, Codes kCodes, bool kDequantize>
void decode_blocks(const PackedMatrix& m, int p, int begin, int end, FloatBlocks& out) {
  constexpr bool kScaled = code_bits(kCodes) <= 8;
  alignas(64) float minima[kScaled && kDequantize ? 2 * kFloatBlocks : 1][kPanel];
  const int groups = groups_in_block(m.format);
  if constexpr (kScaled) {
    decode_scales(m, p, begin, end, out.scales[0]);
    if constexpr (kDequantize) {
      if (has_minima(m.format)) decode_minima(m, p, begin, end, out.scales[0], minima[0]);
    }
  }
  const FloatCodes<kCodes, !kDequantize> from(m, p, begin);
  for (int b = 0; b < end - begin; ++b) {
    for (int h = 0; h < kHalves; ++h) {
      const auto put = [&]<int kLine>() __attribute__((always_inline)) {
        Floats w[Steps::kLine];
        step_line<Steps, kLine>(from, b, h, w);
        if constexpr (kScaled && kDequantize) {
          static_assert(Steps::kLine == 8);
          const int group = b * groups + kLine / 2 * (groups - 1);
          const Floats scale = Floats::load(out.scales[group] + h * kWidth);
          for (Floats& value : w) value = mul(scale, value);
          if (has_minima(m.format)) {
            const Floats minimum = Floats::load(minima[group] + h * kWidth);
            for (Floats& value : w) value = add(value, minimum);
          }
        }
        for (int i = 0; i < Steps::kLine; ++i) store(out.w[b][Steps::kLine * kLine + i] + h * kWidth, w[i]);
      };
      put.template operator()<0>(), put.template operator()<1>();
      put.template operator()<2>(), put.template operator()<3>();
    }
  }
}

// kGroup: inputs that share a scale and so end the even and odd chains; 0: whole blocks without a scale.
// acc [kFloatPanels][kTileRows][kPanel].
template <class Steps, int kGroup, int kRegisters, int kRows>
QUIRE_INLINE void float_tile(const FloatBlocks* panels, int blocks, const std::byte* x, size_t x_stride, float* acc) {
  constexpr int kSteps = 4 * Steps::kLine, kLength = kGroup == 16 ? kSteps / 2 : kSteps;
  // Register j of an array that begins at `p` of panel 0.
  constexpr ptrdiff_t kNextInput = kHalves == 2 ? kWidth : sizeof(FloatBlocks) / sizeof(float);
  constexpr ptrdiff_t kNextSum = kHalves == 2 ? kWidth : kTileRows * kPanel;
  const auto row = [&](int r) __attribute__((always_inline)) {
    return reinterpret_cast<const FloatBlock*>(x + static_cast<size_t>(r) * x_stride);
  };
  for (int b = 0; b < blocks; ++b) {
    for (int begin = 0; begin < kSteps; begin += kLength) {
      Floats even[kRows][kRegisters], odd[kRows][kRegisters];
      for (int r = 0; r < kRows; ++r) {
        for (int j = 0; j < kRegisters; ++j) even[r][j] = odd[r][j] = Floats::all(0.0f);
      }
      const auto step = [&](int k, Floats(&chains)[kRows][kRegisters]) __attribute__((always_inline)) {
        Floats w[kRegisters];
        for (int j = 0; j < kRegisters; ++j) w[j] = Floats::load(panels->w[b][k] + j * kNextInput);
        for (int r = 0; r < kRows; ++r) {
          const auto v = Steps::input(row(r)[b], k);
          for (int j = 0; j < kRegisters; ++j) chains[r][j] = Steps::multiply(v, w[j], chains[r][j]);
        }
      };
      for (int k = begin; k < begin + kLength; k += 2) {
        step(k, even);
        step(k + 1, odd);
      }
      for (int j = 0; j < kRegisters; ++j) {
        Floats scale{};
        if constexpr (kGroup != 0)
          scale = Floats::load(panels->scales[b * (kSteps / kLength) + begin / kLength] + j * kNextInput);
        for (int r = 0; r < kRows; ++r) {
          float* at = acc + r * kPanel + j * kNextSum;
          const Floats sum = add(even[r][j], odd[r][j]);
          store(at, kGroup == 0 ? add(Floats::load(at), sum) : fma(sum, scale, Floats::load(at)));
        }
      }
    }
  }
}

constexpr int float_tiles(int rows) { return (rows + kFloatRows - 1) / kFloatRows; }
template <class Steps, int kGroup, int kRegisters>
void float_rows(const FloatBlocks* panels, int blocks, const std::byte* x, size_t x_stride, int rows, float* acc,
                Prefetch<>& prefetch) {
  const int tiles = float_tiles(rows);
  for (int i = 0; i < tiles; ++i) {
    prefetch.next();
    const int row = rows * i / tiles, count = rows * (i + 1) / tiles - row;
    with_count<kFloatRows>(count, [&]<int kRows>() {
      float_tile<Steps, kGroup, kRegisters, kRows>(panels, blocks, x + static_cast<size_t>(row) * x_stride, x_stride,
                                                   acc + row * kPanel);
    });
  }
}

// out [panels][kTileRows][kPanel] = panel p (and p + 1, if `panels` is 2) times the rows. kGroup 0: of weights; else of
// codes with scales.
template <class Steps, Codes kCodes, int kGroup>
void float_shared(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows, float* out,
                  float* lows) {
  constexpr bool kDequantize = kGroup == 0;
  FloatBlocks decoded[kFloatPanels];
  const int calls = (m.blocks() + kFloatBlocks - 1) / kFloatBlocks * float_tiles(rows);
  Prefetch<> prefetch = Prefetch<>::next_panels(m, p, panels, calls);
  for (int b = 0; b < m.blocks(); b += kFloatBlocks) {
    const int end = b + kFloatBlocks < m.blocks() ? b + kFloatBlocks : m.blocks();
    for (int i = 0; i < panels; ++i) {
      decode_blocks<Steps, kCodes, kDequantize>(m, p + i, b, end, decoded[i]);
      if (lows)
        add_float_low<Steps>(m, p + i, b, end, decoded[i].scales[0], x, x_stride, rows, lows + i * kTileRows * kPanel);
    }
    const std::byte* inputs = x + static_cast<size_t>(b) * sizeof(FloatBlock);
    if (panels == kFloatPanels) {
      float_rows<Steps, kGroup, 2>(decoded, end - b, inputs, x_stride, rows, out, prefetch);
    } else if constexpr (kHalves == 1) {
      float_rows<Steps, kGroup, 1>(decoded, end - b, inputs, x_stride, rows, out, prefetch);
    }
  }
}

QUIRE_INLINE void add_lows(const float* lows, int panels, int rows, float* out) {
  for (int i = 0; i < panels; ++i) {
    for (int at = i * kTileRows * kPanel, r = 0; r < rows * kPanel; r += kWidth)
      store(out + at + r, add(Floats::load(out + at + r), Floats::load(lows + at + r)));
  }
}

// out [panels][kTileRows][kPanel] = panels p .. times the rows, by LinearLoop::Kind::kStream.
template <class Steps, Codes kCodes, int kGroup>
void float_streams(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows,
                   const LinearLoop& loop, float* out) {
  alignas(64) float lows[kGroup == 0 ? 1 : kMostPanelsAtOnce * kTileRows * kPanel];
  const bool minima = kGroup != 0 && has_minima(m.format);
  clear_sums(out, panels, rows);
  if (minima) clear_sums(lows, panels, rows);
  int i = 0;
  const auto stream = [&]<int kPanels>() {
    for (; i + kPanels <= panels; i += kPanels) {
      const int at = i * kTileRows * kPanel;
      float_stream<Steps, kCodes, kGroup, kPanels>(m, p + i, x, x_stride, rows, loop.ahead, out + at,
                                                   minima ? lows + at : nullptr);
    }
  };
  if constexpr (most_streams(kCodes, kGroup) == 4) stream.template operator()<4>(), stream.template operator()<2>();
  stream.template operator()<1>();
  if (minima) add_lows(lows, panels, rows, out);
}

// Likewise, with any loop.
template <class Steps, Codes kCodes, int kGroup>
void float_panels(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows,
                  const LinearLoop& loop, float* out) {
  if constexpr (kGroup != 0 || code_bits(kCodes) > 8) {  // dequantized weights are stored first
    if (loop.kind == LinearLoop::Kind::kStream)
      return float_streams<Steps, kCodes, kGroup>(m, p, panels, x, x_stride, rows, loop, out);
  }
  alignas(64) float lows[kGroup == 0 ? 1 : kMostPanelsAtOnce * kTileRows * kPanel];
  const bool minima = kGroup != 0 && has_minima(m.format);
  clear_sums(out, panels, rows);
  if (minima) clear_sums(lows, panels, rows);
  for (int i = 0; i < panels; i += kFloatPanels) {
    const int at = i * kTileRows * kPanel, count = panels - i < kFloatPanels ? panels - i : kFloatPanels;
    float_shared<Steps, kCodes, kGroup>(m, p + i, count, x, x_stride, rows, out + at, minima ? lows + at : nullptr);
  }
  if (minima) add_lows(lows, panels, rows, out);
}

}  // namespace
}  // namespace quire::QUIRE_ISA
