// Products of panels with float activations (kF32; kBf16: rounded, kept in float32). For many rows, a few blocks of up
// to two panels are decoded to float32 once and multiplied in tiles of registers.
#pragma once

#include "kernels/x86/panel_source.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// What a step of a chain multiplies. kLine: steps per 8 inputs, alternately of the even and the odd chain.
struct Singles {  // one input, in float32
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
  float sum;  // as FloatBlock::sum
  float unused_too[3];
};
static_assert(sizeof(PairBlock) == sizeof(FloatBlock) && offsetof(PairBlock, sum) == offsetof(FloatBlock, sum));
inline constexpr bool kBf16Pairs = true;
QUIRE_INLINE Ints pair(const FloatBlock& x, int i) {
  return Ints::all(static_cast<int32_t>(reinterpret_cast<const PairBlock&>(x).pairs[i]));
}
struct Pairs {  // two inputs and two weights
  static constexpr int kLine = 4;
  QUIRE_INLINE Ints input(const FloatBlock& x, int step) { return pair(x, step); }
  QUIRE_INLINE Floats multiply(Ints x, Floats w, Floats sum) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)x.v, (__m512bh)w.v)};
  }
};
struct SinglesOfPairs {  // one input, taken from its pair: for weights that bf16 cannot represent
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

// Decoded blocks of one panel: quants (or dequantized weights) [inputs][outputs], scales and minima.
struct FloatBlocks {
  alignas(64) float w[kFloatBlocks][kBlockInputs][kPanel];  // or pairs of bf16 [kBlockInputs / 2]
  alignas(64) float scales[kFloatBlocks][2][kPanel];
  alignas(64) float minima[kFloatBlocks][kPanel];
};

// Byte kByte of each dword as a float, minus the zero point.
template <TensorType kType, int kByte>
QUIRE_INLINE Floats widen_byte(Ints bytes) {
  constexpr PackedFormat kFormat = packed_format(kType);
  if constexpr (kFormat.bits == 8 && kSignedOffset == 0)
    return Floats::of(shift_right_signed<24>(shift_left<24 - 8 * kByte>(bytes)));
  const Ints q = band(shift_right<8 * kByte>(bytes), Ints::all(255));
  return Floats::of(kZero<kType> == 0 ? q : sub(q, Ints::all(kZero<kType>)));
}

// Line kLine (8 inputs) of block b of a panel as floats: unquantized weights, quants or, if kDequantize, dequantized
// weights.
template <TensorType kType, bool kDequantize, int kLine>
QUIRE_INLINE void float_line(const PackedMatrix& m, int p, int b, int half, Floats (&w)[8]) {
  const std::byte* block = m.panel(p) + m.layout.quants + static_cast<size_t>(b) * m.layout.block_bytes;
  const int outputs = half * kWidth;
  if constexpr (kType == TensorType::F32) {
    for (int i = 0; i < 8; ++i)
      w[i] = Floats::load(reinterpret_cast<const float*>(block) + (8 * kLine + i) * kPanel + outputs);
  } else if constexpr (kType == TensorType::F16) {
    for (int i = 0; i < 8; ++i) w[i] = scales_f16(block + ((8 * kLine + i) * kPanel + outputs) * 2);
  } else if constexpr (kType == TensorType::BF16) {
    for (int i = 0; i < 8; i += 2) {
      const Ints pair = Ints::load(block + ((8 * kLine + i) * kPanel + 2 * outputs) * 2);
      w[i] = bits(shift_left<16>(pair));
      w[i + 1] = bits(band(pair, Ints::all(static_cast<int32_t>(0xffff0000))));
    }
  } else {
    const Packed<kType> from(m, p);
    const LinePair pair = from.template line<kLine>(b, half);  // bytes hold inputs 0, 4, 1, 5 and 2, 6, 3, 7
    w[0] = widen_byte<kType, 0>(pair.low), w[4] = widen_byte<kType, 1>(pair.low);
    w[1] = widen_byte<kType, 2>(pair.low), w[5] = widen_byte<kType, 3>(pair.low);
    w[2] = widen_byte<kType, 0>(pair.high), w[6] = widen_byte<kType, 1>(pair.high);
    w[3] = widen_byte<kType, 2>(pair.high), w[7] = widen_byte<kType, 3>(pair.high);
    if constexpr (kDequantize) {
      const Floats scale = from.scale(b, 8 * kLine / from.kGroup, half);
      for (Floats& value : w) value = mul(scale, value);
      if constexpr (from.kHasMinimum) {
        const Floats minimum = from.minimum(b, half);
        for (Floats& value : w) value = add(value, minimum);
      }
    }
  }
}

// The same as steps of the chains.
template <class Steps, TensorType kType, bool kDequantize, int kLine>
QUIRE_INLINE void step_line(const PackedMatrix& m, int p, int b, int half, Floats (&steps)[Steps::kLine]) {
  if constexpr (Steps::kLine == 8) {
    float_line<kType, kDequantize, kLine>(m, p, b, half, steps);
  } else {  // bf16 numbers: their lower halves are zero
    Floats w[8];
    float_line<kType, kDequantize, kLine>(m, p, b, half, w);
    for (int i = 0; i < 4; ++i) {
      const int first = i / 2 * 4 + i % 2;
      steps[i] = bits(bor(bits(w[first]), shift_right<16>(bits(w[first + 2]))));
    }
  }
}

// Few rows: half h of panel p, decoded in registers. out, low: [kRows][kPanel].
template <class Steps, TensorType kType, bool kDequantize, int kRows>
QUIRE_INLINE void float_half(const PackedMatrix& m, int p, int h, const std::byte* x, size_t x_stride, float* out,
                             Prefetch& prefetch) {
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr int kLength = kDequantize ? kBlockInputs : kFormat.group;
  constexpr bool kMinima = !kDequantize && kFormat.has_minimum;
  Floats acc[kRows], low[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = low[r] = Floats::all(0.0f);
  for (int b = 0; b < m.blocks(); ++b) {
    prefetch.next();
    const auto row = [&](int r) __attribute__((always_inline)) {
      return reinterpret_cast<const FloatBlock*>(x + static_cast<size_t>(r) * x_stride) + b;
    };
    Floats even[kRows], odd[kRows];
    const auto begin_group = [&]() __attribute__((always_inline)) {
      for (int r = 0; r < kRows; ++r) even[r] = odd[r] = Floats::all(0.0f);
    };
    const auto add_line = [&]<int kLine>() __attribute__((always_inline)) {
      Floats w[Steps::kLine];
      step_line<Steps, kType, kDequantize, kLine>(m, p, b, h, w);
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < Steps::kLine; i += 2) {
          const int step = Steps::kLine * kLine + i;
          even[r] = Steps::multiply(Steps::input(*row(r), step), w[i], even[r]);
          odd[r] = Steps::multiply(Steps::input(*row(r), step + 1), w[i + 1], odd[r]);
        }
      }
    };
    const auto end_group = [&](int g) __attribute__((always_inline)) {
      for (int r = 0; r < kRows; ++r) {
        const Floats sum = add(even[r], odd[r]);
        if constexpr (kDequantize) {
          acc[r] = add(acc[r], sum);
        } else {
          acc[r] = fma(sum, Packed<kType>(m, p).scale(b, g, h), acc[r]);
        }
      }
    };
    begin_group();
    add_line.template operator()<0>();
    add_line.template operator()<1>();
    if constexpr (kLength == 16) end_group(0), begin_group();
    add_line.template operator()<2>();
    add_line.template operator()<3>();
    end_group(kLength == 16 ? 1 : 0);
    if constexpr (kMinima) {
      const Floats minimum = Packed<kType>(m, p).minimum(b, h);
      for (int r = 0; r < kRows; ++r) low[r] = fma(minimum, Floats::all(row(r)->sum), low[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) store(out + r * kPanel + h * kWidth, kMinima ? add(acc[r], low[r]) : acc[r]);
}

// Up to this many rows, decoding the weights again for every four rows is cheaper than storing them decoded.
inline constexpr int kFewFloatRows = 8;
template <class Steps, TensorType kType, bool kDequantize>
void float_few(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, int rows, float* out) {
  const int groups = (rows + 3) / 4;
  const int calls = m.blocks() * groups * kHalves;
  Prefetch prefetch = groups * kHalves == 1 ? Prefetch::ahead(m, p, calls) : Prefetch::next_panels(m, p, 1, calls);
  for (int i = 0; i < groups; ++i) {
    const int row = rows * i / groups, count = rows * (i + 1) / groups - row;
    const auto take = [&]<int kRows>() {
      for (int h = 0; h < kHalves; ++h) {
        float_half<Steps, kType, kDequantize, kRows>(m, p, h, x + static_cast<size_t>(row) * x_stride, x_stride,
                                                     out + row * kPanel, prefetch);
      }
    };
    with_count<4>(count, take);
  }
}

// Decodes blocks [begin, end) of panel p.
template <class Steps, TensorType kType, bool kDequantize>
void decode_blocks(const PackedMatrix& m, int p, int begin, int end, FloatBlocks& out) {
  for (int b = begin; b < end; ++b) {
    for (int h = 0; h < kHalves; ++h) {
      const auto put = [&]<int kLine>() __attribute__((always_inline)) {
        Floats w[Steps::kLine];
        step_line<Steps, kType, kDequantize, kLine>(m, p, b, h, w);
        for (int i = 0; i < Steps::kLine; ++i) store(out.w[b - begin][Steps::kLine * kLine + i] + h * kWidth, w[i]);
      };
      put.template operator()<0>(), put.template operator()<1>();
      put.template operator()<2>(), put.template operator()<3>();
      if constexpr (!kDequantize) {
        const Packed<kType> from(m, p);
        for (int g = 0; g < kBlockInputs / from.kGroup; ++g)
          store(out.scales[b - begin][g] + h * kWidth, from.scale(b, g, h));
        if constexpr (from.kHasMinimum) store(out.minima[b - begin] + h * kWidth, from.minimum(b, h));
      }
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
        if constexpr (kGroup != 0) scale = Floats::load(panels->scales[b][begin / kLength] + j * kNextInput);
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
                Prefetch (&prefetch)[2]) {
  const int tiles = float_tiles(rows);
  for (int i = 0; i < tiles; ++i) {
    for (Prefetch& panel : prefetch) panel.next();
    const int row = rows * i / tiles, count = rows * (i + 1) / tiles - row;
    with_count<kFloatRows>(count, [&]<int kRows>() {
      float_tile<Steps, kGroup, kRegisters, kRows>(panels, blocks, x + static_cast<size_t>(row) * x_stride, x_stride,
                                                   acc + row * kPanel);
    });
  }
}

// low [rows][kPanel] += minima times the sums of the inputs.
void add_minima(const FloatBlocks& panel, int blocks, const std::byte* x, size_t x_stride, int rows, float* low) {
  for (int r = 0; r < rows; ++r) {
    const auto* row = reinterpret_cast<const FloatBlock*>(x + static_cast<size_t>(r) * x_stride);
    for (int h = 0; h < kHalves; ++h) {
      float* at = low + r * kPanel + h * kWidth;
      Floats sum = Floats::load(at);
      for (int b = 0; b < blocks; ++b)
        sum = fma(Floats::load(panel.minima[b] + h * kWidth), Floats::all(row[b].sum), sum);
      store(at, sum);
    }
  }
}

// out [panels][kTileRows][kPanel] = panel p (and p + 1, if `panels` is 2) times the rows.
template <class Steps, TensorType kType, bool kDequantize>
void float_panels(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows, float* out) {
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr int kGroup = kDequantize ? 0 : kFormat.group;
  constexpr bool kMinima = !kDequantize && kFormat.has_minimum;
  alignas(64) float lows[kMinima ? kFloatPanels * kTileRows * kPanel : 1];
  if (rows <= kFewFloatRows) {
    for (int i = 0; i < panels; ++i)
      float_few<Steps, kType, kDequantize>(m, p + i, x, x_stride, rows, out + i * kTileRows * kPanel);
    return;
  }
  const size_t bytes = sizeof(float) * static_cast<size_t>(panels * kTileRows * kPanel);
  __builtin_memset(out, 0, bytes);
  if (kMinima) __builtin_memset(lows, 0, bytes);
  FloatBlocks decoded[kFloatPanels];
  const int calls = (m.blocks() + kFloatBlocks - 1) / kFloatBlocks * float_tiles(rows) * 2 / panels;
  Prefetch prefetch[2] = {Prefetch::ahead(m, p, calls), Prefetch::ahead(m, p + panels - 1, calls)};
  for (int b = 0; b < m.blocks(); b += kFloatBlocks) {
    const int end = b + kFloatBlocks < m.blocks() ? b + kFloatBlocks : m.blocks();
    const std::byte* inputs = x + static_cast<size_t>(b) * sizeof(FloatBlock);
    for (int i = 0; i < panels; ++i) {
      decode_blocks<Steps, kType, kDequantize>(m, p + i, b, end, decoded[i]);
      if constexpr (kMinima) add_minima(decoded[i], end - b, inputs, x_stride, rows, lows + i * kTileRows * kPanel);
    }
    if (panels == kFloatPanels) {
      float_rows<Steps, kGroup, 2>(decoded, end - b, inputs, x_stride, rows, out, prefetch);
    } else if constexpr (kHalves == 1) {
      float_rows<Steps, kGroup, 1>(decoded, end - b, inputs, x_stride, rows, out, prefetch);
    }
  }
  if constexpr (kMinima) {
    for (int i = 0; i < panels * kTileRows * kPanel; i += kWidth)
      store(out + i, add(Floats::load(out + i), Floats::load(lows + i)));
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
