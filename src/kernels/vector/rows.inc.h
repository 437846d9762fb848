// Norms, gates and the functions of routers (kernels/rows.h), written once over the alphabet. Sums are taken in the same
// order as in reference_rows.cc.
#pragma once

#include "kernels/rows.h"
#include "kernels/vector/functions.h"

namespace quire::QUIRE_ISA {
namespace {

// Calls run(i, count) for each run of 16 elements; `count` is smaller for the last. is_whole: a compile-time constant.
template <class Run>
QUIRE_INLINE void for_lanes(int elements, const Run& run) {
  int i = 0;
  for (; i + kLanes <= elements; i += kLanes) run.template operator()<true>(i, kLanes);
  if (i < elements) run.template operator()<false>(i, elements - i);
}
template <bool kWhole>
QUIRE_INLINE Floats16 load(const float* p, int count, float rest = 0.0f) {
  return kWhole ? Floats16::load(p) : load_part(p, count, rest);
}
template <bool kWhole>
QUIRE_INLINE void store(float* p, Floats16 a, int count) {
  kWhole ? store(p, a) : store_part(p, a, count);
}

// The sum of (x - mean)^2.
float sum_squares(const float* x, int size, float mean) {
  Floats16 squares = Floats16::all(0.0f);
  for_lanes(
      size, [&]<bool kWhole>(int i, int count) __attribute__((always_inline)) {
        const Floats16 v = sub(load<kWhole>(x + i, count, mean), Floats16::all(mean));
        squares = fma(v, v, squares);
      });
  return sum_lanes(squares);
}
float rms_factor(const float* x, int size, float epsilon) {
  return 1.0f / __builtin_sqrtf(sum_squares(x, size, 0.0f) / static_cast<float>(size) + epsilon);
}
float mean_of(const float* x, int size) {
  Floats16 sums = Floats16::all(0.0f);
  for_lanes(
      size, [&]<bool kWhole>(int i, int count)
                __attribute__((always_inline)) { sums = add(sums, load<kWhole>(x + i, count)); });
  return sum_lanes(sums) / static_cast<float>(size);
}

[[maybe_unused]] void normalize(const NormArgs& a, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    for (int group = 0; group < a.groups; ++group) {
      const auto at = static_cast<size_t>(group * a.size), weights_at = static_cast<size_t>(group) * a.weight_stride;
      const float* x = a.x + static_cast<size_t>(row) * a.x_stride + at;
      float* y = a.y + static_cast<size_t>(row) * a.y_stride + at;
      float mean = 0, factor = 1;
      if (a.kind == NormKind::kRms) factor = rms_factor(x, a.size, a.epsilon);
      if (a.kind == NormKind::kL2) factor = 1.0f / __builtin_sqrtf(sum_squares(x, a.size, 0.0f) + a.epsilon);
      if (a.kind == NormKind::kLayer) {
        mean = mean_of(x, a.size);
        factor = 1.0f / __builtin_sqrtf(sum_squares(x, a.size, mean) / static_cast<float>(a.size) + a.epsilon);
      }
      const Floats16 scale = Floats16::all(a.scale);
      for_lanes(
          a.size, [&]<bool kWhole>(int i, int count) __attribute__((always_inline)) {
            Floats16 value = mul(sub(load<kWhole>(x + i, count), Floats16::all(mean)), Floats16::all(factor));
            if (a.weight) value = mul(value, load<kWhole>(a.weight + weights_at + i, count));
            if (a.bias) value = add(value, load<kWhole>(a.bias + weights_at + i, count));
            value = a.accumulate ? fma(value, scale, load<kWhole>(y + i, count)) : mul(value, scale);
            store<kWhole>(y + i, value, count);
          });
    }
  }
}

template <Nonlinearity kF>
void multiply_gate_row(const GateArgs& a, const float* gate, float* y) {
  for_lanes(
      a.cols, [&]<bool kWhole>(int i, int count) __attribute__((always_inline)) {
        const Floats16 g = load<kWhole>(gate + i, count);
        store<kWhole>(y + i, gated<kF>(g, load<kWhole>(y + i, count), a.alpha, a.limit), count);
      });
}
[[maybe_unused]] void multiply_gate(const GateArgs& a, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    with_nonlinearity(
        a.nonlinearity, [&]<Nonlinearity kF>() __attribute__((always_inline)) {
          multiply_gate_row<kF>(a, a.gate + static_cast<size_t>(row) * a.gate_stride,
                                a.y + static_cast<size_t>(row) * a.y_stride);
        });
  }
}

[[maybe_unused]] void softplus(const SoftplusArgs& a, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    const float* x = a.x + static_cast<size_t>(row) * a.x_stride;
    float* y = a.y + static_cast<size_t>(row) * a.y_stride;
    for_lanes(
        a.cols, [&]<bool kWhole>(int i, int count) __attribute__((always_inline)) {
          Floats16 value = load<kWhole>(x + i, count);
          if (a.bias) value = add(value, load<kWhole>(a.bias + i, count));
          value = softplus(value);
          if (a.factor) value = mul(value, load<kWhole>(a.factor + i, count));
          store<kWhole>(y + i, value, count);
        });
  }
}

[[maybe_unused]] void soft_cap(float* x, int count, float cap) {
  for_lanes(
      count, [&]<bool kWhole>(int i, int lanes) __attribute__((always_inline)) {
        store<kWhole>(x + i, soft_cap(load<kWhole>(x + i, lanes), Floats16::all(cap)), lanes);
      });
}

[[maybe_unused]] void softmax(float* x, int count) {
  const float none = -__builtin_inff();
  Floats16 largest = Floats16::all(none);
  for_lanes(
      count, [&]<bool kWhole>(int i, int lanes)
                 __attribute__((always_inline)) { largest = max(load<kWhole>(x + i, lanes, none), largest); });
  const Floats16 top = Floats16::all(max_lanes(largest));
  Floats16 sums = Floats16::all(0.0f);
  for_lanes(
      count, [&]<bool kWhole>(int i, int lanes) __attribute__((always_inline)) {
        const Floats16 v = load<kWhole>(x + i, lanes, none), weight = where_number(exp(sub(v, top)), v, v);
        sums = add(sums, weight);
        store<kWhole>(x + i, weight, lanes);
      });
  const Floats16 sum = Floats16::all(sum_lanes(sums));
  for_lanes(
      count, [&]<bool kWhole>(int i, int lanes)
                 __attribute__((always_inline)) { store<kWhole>(x + i, div(load<kWhole>(x + i, lanes), sum), lanes); });
}

[[maybe_unused]] void sigmoid(float* x, int count) {
  for_lanes(
      count, [&]<bool kWhole>(int i, int lanes)
                 __attribute__((always_inline)) { store<kWhole>(x + i, sigmoid(load<kWhole>(x + i, lanes)), lanes); });
}

}  // namespace
}  // namespace quire::QUIRE_ISA
