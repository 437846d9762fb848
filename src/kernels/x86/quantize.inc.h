// Activation blocks, written once over x86/vector.h. Sums are taken in the order of reference_rows.cc.
#pragma once

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/x86/rows.inc.h"
#include "kernels/x86/vector.h"

namespace quire::QUIRE_ISA {
namespace {

// Bytes of 16 inputs in kPairOrder.
QUIRE_INLINE __m128i in_pair_order(__m128i bytes) {
  return _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
}

QUIRE_INLINE void write_int8(Floats16 x0, Floats16 x1, Int8Block& out) {
  const float largest = largest_magnitude(x0, x1);
  out.scale = largest / 127.0f;
  const Floats16 inverse = Floats16::all(largest >= kSmallestInt8 ? 127.0f / largest : 0.0f),
                 bottom = Floats16::all(-127.0f);
  const Floats16 halves[2] = {x0, x1};
  for (int half = 0; half < 2; ++half) {
    const __m128i bytes = to_bytes(to_int(max(mul(halves[half], inverse), bottom)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out.q + 16 * half), in_pair_order(bytes));
    out.half_sums[half] = static_cast<int16_t>(sum_bytes(bytes));
  }
  out.unused = 0;
  out.sum = out.scale * static_cast<float>(out.half_sums[0] + out.half_sums[1]);
}

// One row to Int8RowBlocks; `for_each(write)` calls write(b, x0, x1) for each of its blocks.
template <class ForEach>
QUIRE_INLINE void write_int8_row(float threshold, Int8RowBlock* out, ForEach for_each) {
  const Floats16 limit = Floats16::all(threshold), zero = Floats16::all(0.0f);
  const auto below = [=](Floats16 x) __attribute__((always_inline)) { return choose(zero, x, abs(x), limit); };
  Ints16 most0 = Ints16::all(0), most1 = most0;
  for_each([&](int, Floats16 x0, Floats16 x1) __attribute__((always_inline)) {
    most0 = max(most0, bits(abs(below(x0)))), most1 = max(most1, bits(abs(below(x1))));
  });
  const float largest = largest_magnitude(bits(most0), bits(most1));
  const float scale = largest / 127.0f, inverse = largest >= kSmallestInt8 ? 127.0f / largest : 0.0f;
  for_each([&](int b, Floats16 x0, Floats16 x1) __attribute__((always_inline)) {
    Int8RowBlock& block = out[b];
    const Floats16 halves[2] = {x0, x1};
    block.scale = scale;
    block.sum = 0;
    block.outliers = 0;
    alignas(64) float x[kLanes];
    for (int half = 0; half < 2; ++half) {
      const __m128i bytes =
          to_bytes(to_int(max(mul(below(halves[half]), Floats16::all(inverse)), Floats16::all(-127.0f))));
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
    half_sums[half] = sums[0] + sums[1];
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

// Calls write(b, x0, x1) for each block of a row: its inputs, normalised.
template <class Write>
QUIRE_INLINE void for_each_block(const QuantizeArgs& a, int row, Write write) {
  const float* x = a.x + static_cast<size_t>(row) * a.x_stride;
  const Floats16 factor = Floats16::all(a.norm_weight ? rms_factor(x, a.cols, a.epsilon) : 1.0f);
  for (int k = 0; k < a.cols; k += kBlockInputs) {
    Floats16 x0, x1, w0 = Floats16::all(1.0f), w1 = w0;
    if (k + kBlockInputs <= a.cols) {
      x0 = Floats16::load(x + k), x1 = Floats16::load(x + k + kLanes);
      if (a.norm_weight) w0 = Floats16::load(a.norm_weight + k), w1 = Floats16::load(a.norm_weight + k + kLanes);
    } else {
      alignas(64) float last[2][kBlockInputs] = {};
      for (int i = 0; k + i < a.cols; ++i)
        last[0][i] = x[k + i], last[1][i] = a.norm_weight ? a.norm_weight[k + i] : 1.0f;
      x0 = Floats16::load(last[0]), x1 = Floats16::load(last[0] + kLanes), w0 = Floats16::load(last[1]),
      w1 = Floats16::load(last[1] + kLanes);
    }
    if (a.norm_weight) x0 = mul(mul(x0, factor), w0), x1 = mul(mul(x1, factor), w1);
    write(k / kBlockInputs, x0, x1);
  }
}

void quantize(const QuantizeArgs& a, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    std::byte* out = a.out + static_cast<size_t>(row) * a.out_stride;
    if (a.to == Activations::kInt8Row) {
      write_int8_row(
          a.threshold, reinterpret_cast<Int8RowBlock*>(out), [&](auto write) __attribute__((always_inline)) {
            for_each_block(a, row, write);
          });
      continue;
    }
    for_each_block(
        a, row, [&](int b, Floats16 x0, Floats16 x1) __attribute__((always_inline)) {
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
