// Activation blocks, written once over the alphabet. Sums are taken in the order of reference_rows.cc.
#pragma once

#include "base/float8.h"
#include "base/half.h"
#include "kernels/denormals.h"
#include "kernels/kernels.h"
#include "kernels/vector/alphabet.h"
#include "kernels/vector/rows.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// One row's inputs, normalised.
class RowInputs {
 public:
  [[gnu::always_inline]] RowInputs(const QuantizeArgs& a, int row)
      : a_(a),
        x_(a.x + static_cast<size_t>(row) * a.x_stride),
        factor_(Floats16::all(a.norm_weight ? rms_factor(x_, a.cols, a.epsilon) : 1.0f)) {
    if (a.to_e4m3) find_e4m3_scale();
  }

  [[gnu::always_inline]] int blocks() const { return (a_.cols + kBlockInputs - 1) / kBlockInputs; }

  // Calls use(x0, x1) for the two halves of block b.
  template <class Use>
  [[gnu::always_inline]] void with_block(int b, Use use) const {
    const int k = b * kBlockInputs;
    Floats16 x0, x1, w0 = Floats16::all(1.0f), w1 = w0;
    if (k + kBlockInputs <= a_.cols) {
      x0 = Floats16::load(x_ + k), x1 = Floats16::load(x_ + k + kLanes);
      if (a_.norm_weight) w0 = Floats16::load(a_.norm_weight + k), w1 = Floats16::load(a_.norm_weight + k + kLanes);
    } else {
      alignas(64) float last[2][kBlockInputs] = {};
      for (int i = 0; k + i < a_.cols; ++i)
        last[0][i] = x_[k + i], last[1][i] = a_.norm_weight ? a_.norm_weight[k + i] : 1.0f;
      x0 = Floats16::load(last[0]), x1 = Floats16::load(last[0] + kLanes), w0 = Floats16::load(last[1]),
      w1 = Floats16::load(last[1] + kLanes);
    }
    if (a_.norm_weight) x0 = mul(mul(x0, factor_), w0), x1 = mul(mul(x1, factor_), w1);
    if (least_normal_ != 0) x0 = round_to_e4m3(x0), x1 = round_to_e4m3(x1);
    use(x0, x1);
  }

  // Calls write(b, x0, x1) for each block.
  template <class Write>
  [[gnu::always_inline]] void for_each_block(Write write) const {
    for (int b = 0; b < blocks(); ++b) {
      with_block(
          b, [&](Floats16 x0, Floats16 x1) __attribute__((always_inline)) { write(b, x0, x1); });
    }
  }

 private:
  [[gnu::always_inline]] void find_e4m3_scale() {
    Ints16 most = Ints16::all(0);
    for_each_block([&](int, Floats16 x0, Floats16 x1)
                       __attribute__((always_inline)) { most = max(most, max(bits(abs(x0)), bits(abs(x1)))); });
    const float largest = largest_magnitude(bits(most), bits(most));
    least_normal_ = largest < kLeastTooLargeForE4M3 ? e4m3_least_normal(e4m3_exponent(largest)) : kNoNumbers;
  }

  // As base/float8.h.
  [[gnu::always_inline]] Floats16 round_to_e4m3(Floats16 x) const {
    if (least_normal_ == kNoNumbers) return Floats16::all(__builtin_nanf(""));
    const Ints16 power = max(band(bits(x), Ints16::all(0x7f800000)), Ints16::all(static_cast<int32_t>(least_normal_)));
    const Floats16 rounder = bits(bor(add(power, Ints16::all(20 << 23)), Ints16::all(0x00400000)));
    return sub(add(x, rounder), rounder);
  }

  static constexpr uint32_t kNoNumbers = ~0u;  // least_normal_ of a row that is NaN
  const QuantizeArgs& a_;
  const float* x_;
  Floats16 factor_;
  uint32_t least_normal_ = 0;  // e4m3_least_normal(); 0: numbers are not rounded here
};

// Bytes of 16 inputs in kPairOrder.
QUIRE_INLINE __m128i in_pair_order(__m128i bytes) {
  return _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
}

// Digits of int8: x times int8_factor(), the largest magnitude of the block.
QUIRE_INLINE float int8_factor(float largest) { return largest >= kSmallestInt8 ? 127.0f / largest : 0.0f; }
QUIRE_INLINE Ints16 int8_digits(Floats16 x, Floats16 factor) {
  return to_int(max(mul(x, factor), Floats16::all(-127.0f)));
}

QUIRE_INLINE void write_int8(Floats16 x0, Floats16 x1, Int8Block& out) {
  const float largest = largest_magnitude(x0, x1);
  out.scale = largest / 127.0f;
  const Floats16 factor = Floats16::all(int8_factor(largest));
  const Floats16 halves[2] = {x0, x1};
  for (int half = 0; half < 2; ++half) {
    const __m128i bytes = to_bytes(int8_digits(halves[half], factor));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out.q + 16 * half), in_pair_order(bytes));
    out.half_sums[half] = static_cast<int16_t>(sum_bytes(bytes));
  }
  out.outliers = 0;
  out.sum = out.scale * static_cast<float>(out.half_sums[0] + out.half_sums[1]);
}

// x, but 0 where |x| is at least the limit.
QUIRE_INLINE Floats16 below(Floats16 x, Floats16 limit) { return choose(Floats16::all(0.0f), x, abs(x), limit); }

// The least magnitude of a row's outliers; NaN if it has none.
QUIRE_INLINE float outlier_limit(const RowInputs& inputs, const QuantizeArgs& a) {
  Floats16 sums = Floats16::all(0.0f);
  inputs.for_each_block([&](int, Floats16 x0, Floats16 x1)
                            __attribute__((always_inline)) { sums = add(add(sums, abs(x0)), abs(x1)); });
  const float mean = sum_lanes(sums) / static_cast<float>(a.cols);
  return mean >= kSmallestOutliers && mean < __builtin_inff() ? a.outlier_ratio * mean : __builtin_nanf("");
}

// One row of kInt8x2.
QUIRE_INLINE void write_int8x2(const RowInputs& inputs, const QuantizeArgs& a, Int8Block* out) {
  const float limit = outlier_limit(inputs, a);
  const Floats16 limits = Floats16::all(limit);
  auto* const outliers = reinterpret_cast<Outlier*>(out + inputs.blocks());
  int count = 0;
  inputs.for_each_block([&](int b, Floats16 x0, Floats16 x1) __attribute__((always_inline)) {
    uint32_t left = lanes_at_least(abs(x0), limits) | lanes_at_least(abs(x1), limits) << kLanes;
    if (left != 0 && count + __builtin_popcount(left) <= kMostOutliers) {
      alignas(64) float x[kBlockInputs];
      store(x, x0), store(x + kLanes, x1);
      for (; left != 0; left &= left - 1) {
        const int i = __builtin_ctz(left);
        outliers[count++] = {b * kBlockInputs + i, x[i]};
      }
      x0 = below(x0, limits), x1 = below(x1, limits);
    }
    write_int8(x0, x1, out[b]);
  });
  out[0].outliers = static_cast<uint32_t>(count);
}

// One row to Int8RowBlocks.
QUIRE_INLINE void write_int8_row(const RowInputs& inputs, float threshold, Int8RowBlock* out) {
  const Floats16 limit = Floats16::all(threshold);
  Ints16 most0 = Ints16::all(0), most1 = most0;
  inputs.for_each_block([&](int, Floats16 x0, Floats16 x1) __attribute__((always_inline)) {
    most0 = max(most0, bits(abs(below(x0, limit)))), most1 = max(most1, bits(abs(below(x1, limit))));
  });
  const float largest = largest_magnitude(bits(most0), bits(most1));
  const float scale = largest / 127.0f;
  const Floats16 factor = Floats16::all(int8_factor(largest));
  inputs.for_each_block([&](int b, Floats16 x0, Floats16 x1) __attribute__((always_inline)) {
    Int8RowBlock& block = out[b];
    const Floats16 halves[2] = {x0, x1};
    block.scale = scale;
    block.sum = 0;
    block.outliers = 0;
    alignas(64) float x[kLanes];
    for (int half = 0; half < 2; ++half) {
      const __m128i bytes = to_bytes(int8_digits(below(halves[half], limit), factor));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(block.q + 16 * half), in_pair_order(bytes));
      block.sum += sum_bytes(bytes);
      if (!(max_lanes(abs(halves[half])) >= threshold)) continue;
      store(x, halves[half]);
      for (int i = 0; i < kLanes; ++i) {
        if (!(__builtin_fabsf(x[i]) >= threshold)) continue;
        block.outliers |= 1u << (16 * half + i);
        block.x[16 * half + i] = outlier_f16(x[i]);
      }
    }
  });
}

// FloatBlock::half_sums and sum of a block of rounded inputs.
QUIRE_INLINE void write_sums(const float* x, float& sum, float (&half_sums)[2]) {
  for (int half = 0; half < 2; ++half) {
    __m128 sums = _mm_setzero_ps();
    for (int i = 0; i < kBlockInputs / 2; i += 2)
      sums = _mm_add_ps(sums, _mm_loadl_pi(_mm_setzero_ps(), reinterpret_cast<const __m64*>(x + 16 * half + i)));
    half_sums[half] = normal_or_zero(sums[0] + sums[1]);
  }
  sum = half_sums[0] + half_sums[1];
}

QUIRE_INLINE void write_floats(Floats16 x0, Floats16 x1, bool round_to_bf16, FloatBlock& out) {
  store(out.x, x0);
  store(out.x + kLanes, x1);
  if (!round_to_bf16) return;  // only bf16 uses the sums
  store(out.x, to_bf16(x0));
  store(out.x + kLanes, to_bf16(x1));
  write_sums(out.x, out.sum, out.half_sums);
}

[[maybe_unused]] void quantize(const QuantizeArgs& a, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    std::byte* out = a.out + static_cast<size_t>(row) * a.out_stride;
    const RowInputs inputs(a, row);
    if (a.to == Activations::kInt8Row) {
      write_int8_row(inputs, a.threshold, reinterpret_cast<Int8RowBlock*>(out));
      continue;
    }
    if (a.to == Activations::kInt8x2) {
      write_int8x2(inputs, a, reinterpret_cast<Int8Block*>(out));
      continue;
    }
    inputs.for_each_block([&](int b, Floats16 x0, Floats16 x1) __attribute__((always_inline)) {
      if (a.to == Activations::kInt8) {
        write_int8(x0, x1, reinterpret_cast<Int8Block*>(out)[b]);
      } else {
        write_floats(x0, x1, a.to == Activations::kBf16, reinterpret_cast<FloatBlock*>(out)[b]);
      }
    });
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
