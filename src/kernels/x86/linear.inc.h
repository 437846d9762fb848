// Linears over packed weights, written once over x86/vector.h. The sums are reference.cc's, in its order.

#include "kernels/denormals.h"
#include "kernels/kernels.h"
#include "kernels/x86/vector.h"

namespace quire {
namespace {

// The quants of line `l` of a block as two registers: low and high nibble places (for 8 bits, two lines).
struct LinePair {
  B64 low, high;
};
template <int kBits, int kLine>
QUIRE_INLINE LinePair load_line(const std::byte* block) {
  if constexpr (kBits == 8) return {load_bytes(block + 128 * kLine), load_bytes(block + 128 * kLine + 64)};
  const B64 raw = load_bytes(block + 64 * kLine);
  LinePair pair{low_nibbles(raw), high_nibbles(raw)};
  if constexpr (kBits == 5) {
    pair.low = add_fifth_bits(pair.low, block + 256 + 16 * kLine);
    pair.high = add_fifth_bits(pair.high, block + 256 + 16 * kLine + 8);
  } else if constexpr (kBits == 6) {
    const B64 plane = load_bytes(block + 256 + 64 * (kLine / 2));
    pair.low = add_top_bits<4 * (kLine % 2)>(pair.low, plane);
    pair.high = add_top_bits<4 * (kLine % 2) + 2>(pair.high, plane);
  }
  return pair;
}

// Scales of one panel, read block by block.
template <TensorType kType>
struct Scales {
  static constexpr PackedFormat kFormat = packed_format(kType);
  const std::byte *supers, *super_minima, *scales, *minima;

  QUIRE_INLINE Scales at(const PackedMatrix& m, const std::byte* panel) {
    return {panel + m.layout.supers, panel + m.layout.super_minima, panel + m.layout.scales, panel + m.layout.minima};
  }
  [[gnu::always_inline]] static const uint16_t* half(const std::byte* p, int entry) {
    return reinterpret_cast<const uint16_t*>(p) + entry * kPanel;
  }
  // Of group g of block b.
  [[gnu::always_inline]] F scale(int b, int g) const {
    if constexpr (!kFormat.super_block) return load_f16(half(scales, b));
    const F super = load_f16(half(supers, b / 8));
    if constexpr (kFormat.group == 16) return mul(super, load_i8(scales + (2 * b + g) * kPanel));
    return mul(super, load_u8(scales + b * kPanel));
  }
  [[gnu::always_inline]] F minimum(int b) const {
    if constexpr (!kFormat.super_block) return load_f16(half(minima, b));
    return sub(set1(0.0f), mul(load_f16(half(super_minima, b / 8)), load_u8(minima + b * kPanel)));
  }
};

template <int kBits, int kLine, int kRows>
QUIRE_INLINE void dot_line(const std::byte* block, const std::byte* const (&x)[kRows], Dot (&dots)[kRows]) {
  const LinePair w = load_line<kBits, kLine>(block);
  for (int r = 0; r < kRows; ++r) {
    const int8_t* q = reinterpret_cast<const Int8Block*>(x[r])->q + 8 * kLine;
    dot<kBits>(dots[r], w.low, q);
    dot<kBits>(dots[r], w.high, q + 4);
  }
}

// out[r] = panel * row r, int8 activations.
template <TensorType kType, int kRows>
QUIRE_INLINE void int8_panel(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, bool prefetch,
                             F (&out)[kRows]) {
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr int kOffset = kFormat.bits == 8 ? kSignedOffset : kFormat.zero;  // a power of two, or none
  const std::byte* panel = m.panel(p);
  const Scales<kType> scales = Scales<kType>::at(m, panel);
  const std::byte* block = panel + m.layout.quants;
  const std::byte* rows[kRows];
  F acc[kRows], lows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = x + static_cast<size_t>(r) * x_stride, acc[r] = lows[r] = set1(0.0f);
  const int blocks = m.blocks();
  for (int b = 0; b < blocks; ++b, block += m.layout.block_bytes) {
    if (prefetch) {
      // 2 KiB ahead: where a 4-bit product ran fastest over huge pages. Later rows find the panel in the cache.
      for (size_t i = 0; i < m.layout.block_bytes; i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(block + 2048 + i), _MM_HINT_T0);
    }
    const auto add_group = [&](int g, const Dot(&dots)[kRows]) __attribute__((always_inline)) {
      const F scale = scales.scale(b, g);
      for (int r = 0; r < kRows; ++r) {
        const auto* row = reinterpret_cast<const Int8Block*>(rows[r]);
        I sum = finish<kFormat.bits>(dots[r]);
        if constexpr (kOffset != 0) {
          const int32_t total = kFormat.group == 16 ? row->half_sums[g] : row->half_sums[0] + row->half_sums[1];
          sum = sub(sum, set1(total * kOffset));
        }
        acc[r] = fma(to_float(sum), mul(scale, set1(row->scale)), acc[r]);
      }
    };
    Dot dots[kRows];
    for (Dot& d : dots) d = no_dot();
    dot_line<kFormat.bits, 0>(block, rows, dots);
    dot_line<kFormat.bits, 1>(block, rows, dots);
    if constexpr (kFormat.group == 16) {
      add_group(0, dots);
      for (Dot& d : dots) d = no_dot();
    }
    dot_line<kFormat.bits, 2>(block, rows, dots);
    dot_line<kFormat.bits, 3>(block, rows, dots);
    add_group(kFormat.group == 16 ? 1 : 0, dots);
    if constexpr (kFormat.has_minimum) {
      const F minimum = scales.minimum(b);
      for (int r = 0; r < kRows; ++r)
        lows[r] = fma(minimum, set1(reinterpret_cast<const Int8Block*>(rows[r])->sum), lows[r]);
    }
    for (const std::byte*& row : rows) row += sizeof(Int8Block);
  }
  for (int r = 0; r < kRows; ++r) out[r] = kFormat.has_minimum ? add(acc[r], lows[r]) : acc[r];
}

// Byte kByte of each dword as a float, zero point taken off.
template <TensorType kType, int kByte>
QUIRE_INLINE F widen(B64 bytes) {
  constexpr PackedFormat kFormat = packed_format(kType);
  if constexpr (kFormat.bits == 8) return to_float(shift_right_signed<24>(shift_left<24 - 8 * kByte>(as_int(bytes))));
  const I q = band(shift_right<8 * kByte>(as_int(bytes)), set1(int32_t{255}));
  if constexpr (kFormat.zero == 0) return to_float(q);
  return to_float(sub(q, set1(int32_t{kFormat.zero})));
}
template <TensorType kType, int kLine>
QUIRE_INLINE void decode_line(const std::byte* block, float* out) {
  const LinePair w = load_line<packed_format(kType).bits, kLine>(block);
  float* line = out + 8 * kLine * kPanel;  // bytes hold inputs 0, 4, 1, 5 and 2, 6, 3, 7
  store(line + 0 * kPanel, widen<kType, 0>(w.low)), store(line + 4 * kPanel, widen<kType, 1>(w.low));
  store(line + 1 * kPanel, widen<kType, 2>(w.low)), store(line + 5 * kPanel, widen<kType, 3>(w.low));
  store(line + 2 * kPanel, widen<kType, 0>(w.high)), store(line + 6 * kPanel, widen<kType, 1>(w.high));
  store(line + 3 * kPanel, widen<kType, 2>(w.high)), store(line + 7 * kPanel, widen<kType, 3>(w.high));
}

// Block b as float32 [32 inputs][16 outputs]: the integers, or the dequantized weights.
template <TensorType kType, bool kDequantize>
QUIRE_INLINE void decode_block(const PackedMatrix& m, const Scales<kType>& scales, const std::byte* panel, int b,
                               float* out) {
  constexpr PackedFormat kFormat = packed_format(kType);
  const std::byte* block = panel + m.layout.quants + static_cast<size_t>(b) * m.layout.block_bytes;
  if constexpr (kType == TensorType::F32) {
    __builtin_memcpy(out, block, sizeof(float) * kBlock * kPanel);
  } else if constexpr (kType == TensorType::F16) {
    for (int k = 0; k < kBlock; ++k)
      store(out + k * kPanel, load_f16(reinterpret_cast<const uint16_t*>(block) + k * kPanel));
  } else if constexpr (kType == TensorType::BF16) {
    for (int k = 0; k < kBlock; k += 2) {
      const I pair = load_int(block + k * kPanel * 2);
      store(out + k * kPanel, bits(shift_left<16>(pair)));
      store(out + (k + 1) * kPanel, bits(shift_left<16>(shift_right<16>(pair))));
    }
  } else {
    decode_line<kType, 0>(block, out);
    decode_line<kType, 1>(block, out);
    decode_line<kType, 2>(block, out);
    decode_line<kType, 3>(block, out);
    if constexpr (kDequantize) {
      for (int k = 0; k < kBlock; ++k) {
        F w = mul(scales.scale(b, k / kFormat.group), load(out + k * kPanel));
        if constexpr (kFormat.has_minimum) w = add(w, scales.minimum(b));
        store(out + k * kPanel, w);
      }
    }
  }
}

// out[r] = panel * row r, float activations (bf16 ones are already rounded).
template <TensorType kType, bool kDequantize, int kRows>
QUIRE_INLINE void float_panel(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, F (&out)[kRows]) {
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr int kGroup = kDequantize ? kBlock : kFormat.group;
  const std::byte* panel = m.panel(p);
  const Scales<kType> scales = Scales<kType>::at(m, panel);
  F acc[kRows], lows[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = lows[r] = set1(0.0f);
  alignas(64) float w[kBlock * kPanel];
  const int blocks = m.blocks();
  for (int b = 0; b < blocks; ++b) {
    decode_block<kType, kDequantize>(m, scales, panel, b, w);
    for (int begin = 0; begin < kBlock; begin += kGroup) {
      F scale = set1(1.0f);
      if constexpr (!kDequantize) scale = scales.scale(b, begin / kGroup);
      for (int r = 0; r < kRows; ++r) {
        const float* v = reinterpret_cast<const FloatBlock*>(x + static_cast<size_t>(r) * x_stride)[b].x;
        F even = set1(0.0f), odd = even;
        for (int k = begin; k < begin + kGroup; k += 2) {
          even = fma(set1(v[k]), load(w + k * kPanel), even);
          odd = fma(set1(v[k + 1]), load(w + (k + 1) * kPanel), odd);
        }
        acc[r] = kDequantize ? add(acc[r], add(even, odd)) : fma(add(even, odd), scale, acc[r]);
      }
    }
    if constexpr (!kDequantize && kFormat.has_minimum) {
      const F minimum = scales.minimum(b);
      for (int r = 0; r < kRows; ++r) {
        lows[r] = fma(minimum, set1(reinterpret_cast<const FloatBlock*>(x + static_cast<size_t>(r) * x_stride)[b].sum),
                      lows[r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) out[r] = !kDequantize && kFormat.has_minimum ? add(acc[r], lows[r]) : acc[r];
}

// Product of one panel with kRows rows: out[r] = panel * row r. prefetch: these are the first rows that read the panel.
using Product = void (*)(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, bool prefetch, F* out);

template <TensorType kType, int kRows>
void int8_product(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, bool prefetch, F* out) {
  int8_panel<kType, kRows>(m, p, x, x_stride, prefetch, *reinterpret_cast<F(*)[kRows]>(out));
}
template <TensorType kType, bool kDequantize, int kRows>
void float_product(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, bool /*prefetch*/, F* out) {
  float_panel<kType, kDequantize, kRows>(m, p, x, x_stride, *reinterpret_cast<F(*)[kRows]>(out));
}

template <TensorType kType, int kRows>
Product product_of(Activations activations) {
  if constexpr (is_quantized(kType)) {
    if (activations == Activations::kInt8) return int8_product<kType, kRows>;
    if (activations == Activations::kBf16) return float_product<kType, false, kRows>;
  }
  return float_product<kType, true, kRows>;
}
template <int kRows>
Product find_product(TensorType type, Activations activations) {
  switch (type) {
    case TensorType::Q4_0:
      return product_of<TensorType::Q4_0, kRows>(activations);
    case TensorType::Q4_1:
      return product_of<TensorType::Q4_1, kRows>(activations);
    case TensorType::Q5_0:
      return product_of<TensorType::Q5_0, kRows>(activations);
    case TensorType::Q5_1:
      return product_of<TensorType::Q5_1, kRows>(activations);
    case TensorType::Q8_0:
      return product_of<TensorType::Q8_0, kRows>(activations);
    case TensorType::Q4_K:
      return product_of<TensorType::Q4_K, kRows>(activations);
    case TensorType::Q5_K:
      return product_of<TensorType::Q5_K, kRows>(activations);
    case TensorType::Q6_K:
      return product_of<TensorType::Q6_K, kRows>(activations);
    case TensorType::F16:
      return product_of<TensorType::F16, kRows>(activations);
    case TensorType::BF16:
      return product_of<TensorType::BF16, kRows>(activations);
    default:
      return product_of<TensorType::F32, kRows>(activations);
  }
}

// The rest of a linear for the rows of one product: bias, gate, residual.
QUIRE_INLINE void finish_rows(const LinearArgs& a, int p, int row, int rows, F* out, const F* up) {
  const int n = p * kPanel, left = a.weights->rows - n;
  if (a.bias) {
    alignas(64) float bias[kPanel] = {};
    for (int i = 0; i < kPanel && i < left; ++i) bias[i] = a.bias[n + i];
    for (int r = 0; r < rows; ++r) out[r] = add(out[r], load(bias));
  }
  for (int r = 0; r < rows; ++r) {
    const F value = up ? mul(silu(out[r]), up[r]) : out[r];
    float* y = a.y + static_cast<size_t>(row + r) * a.y_stride + n;
    if (left >= kPanel) {
      store(y, a.accumulate ? add(load(y), value) : value);
    } else {
      alignas(64) float last[kPanel];
      store(last, value);
      for (int i = 0; i < left; ++i) y[i] = a.accumulate ? y[i] + last[i] : last[i];
    }
  }
}

template <int kRows>
void linear_rows(const LinearArgs& a, int panel_begin, int panel_end, int first_row, int row_begin, int row_end) {
  const Product product = find_product<kRows>(a.weights->type, a.activations);
  const Product up_product = a.up ? find_product<kRows>(a.up->type, a.activations) : nullptr;
  for (int p = panel_begin; p < panel_end; ++p) {
    for (int row = row_begin; row < row_end; row += kRows) {
      F out[kRows], up[kRows];
      const std::byte* x = a.x + static_cast<size_t>(row) * a.x_stride;
      const bool first = row == first_row;
      product(*a.weights, p, x, a.x_stride, first, out);
      if (up_product) up_product(*a.up, p, x, a.x_stride, first, up);
      finish_rows(a, p, row, kRows, out, up_product ? up : nullptr);
    }
  }
}

void linear(const LinearArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  const FlushDenormals flush(a.activations == Activations::kBf16);
  int row = row_begin;
  const auto take = [&]<int kRows>() {
    const int end = row + (row_end - row) / kRows * kRows;
    if (end > row) linear_rows<kRows>(a, panel_begin, panel_end, row_begin, row, end);
    row = end;
  };
  if constexpr (kMaxRows >= 8) take.template operator()<8>();
  take.template operator()<4>();
  take.template operator()<2>();
  take.template operator()<1>();
}

}  // namespace
}  // namespace quire
