// Kernels that carry a state from token to token (kernels/recurrent.h), written once over the alphabet. A column of 16
// lanes of the state goes through all rows before the next, so that it stays in a near cache.
#pragma once

#include "kernels/recurrent.h"
#include "kernels/vector/rows.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// Columns processed together: their chains hide the latency of an FMA.
inline constexpr int kStateColumns = kWidth == 16 ? 4 : 2;

// Calls run.operator()<kColumns, kWhole>(element, count) for all columns of 16 elements, the last of which may be
// partial.
template <class Run>
QUIRE_INLINE void for_columns(int elements, const Run& run) {
  int i = 0;
  for (; i + kStateColumns * kLanes <= elements; i += kStateColumns * kLanes)
    run.template operator()<kStateColumns, true>(i, kLanes);
  for (; i + kLanes <= elements; i += kLanes) run.template operator()<1, true>(i, kLanes);
  if (i < elements) run.template operator()<1, false>(i, elements - i);
}

// Columns [column, column + kColumns * 16) of a state [rows][stride].
template <int kColumns, bool kWhole>
void copy_columns(const float* state, int rows, int stride, int column, int count, float* to) {
  for (ptrdiff_t i = 0, at = column; i < rows; ++i, at += stride) {
    for (int c = 0; c < kColumns * kLanes; c += kLanes)
      store<kWhole>(to + at + c, load<kWhole>(state + at + c, count), count);
  }
}

template <int kTaps, bool kWhole>
void convolve(const ShortConvArgs& a, int channel, int count) {
  const auto at = [&](int tap) {
    return static_cast<size_t>(tap) * static_cast<size_t>(a.channels) + static_cast<size_t>(channel);
  };
  Floats16 weight[kTaps], inputs[kTaps];
  QUIRE_UNROLL
  for (int t = 0; t < kTaps; ++t) {
    weight[t] = load<kWhole>(a.weight + at(t), count);
    if (t + 1 < kTaps) inputs[t] = load<kWhole>(a.state + at(t), count);
  }
  const Floats16 bias = a.bias ? load<kWhole>(a.bias + channel, count) : Floats16::all(0.0f);
  const auto save = [&](float* state) __attribute__((always_inline)) {
    QUIRE_UNROLL
    for (int t = 0; t + 1 < kTaps; ++t) store<kWhole>(state + at(t), inputs[t], count);
  };
  for (int row = 0; row < a.rows; ++row) {
    inputs[kTaps - 1] = load<kWhole>(a.x + static_cast<size_t>(row) * a.x_stride + channel, count);
    Floats16 sum = Floats16::all(0.0f);
    QUIRE_UNROLL
    for (int t = 0; t < kTaps; ++t) sum = fma(weight[t], inputs[t], sum);
    if (a.bias) sum = add(sum, bias);
    if (a.silu) sum = silu(sum);
    store<kWhole>(a.y + static_cast<size_t>(row) * a.y_stride + channel, sum, count);
    QUIRE_UNROLL
    for (int t = 0; t + 1 < kTaps; ++t) inputs[t] = inputs[t + 1];
    if (row == a.checkpoint.row) save(a.checkpoint.state);
  }
  save(a.state);
}
void short_conv(const ShortConvArgs& a, int channel_begin, int channel_end) {
  with_count<kMaxConvWidth>(
      a.width, [&]<int kTaps>() __attribute__((always_inline)) {
        int c = channel_begin;
        for (; c + kLanes <= channel_end; c += kLanes) convolve<kTaps, true>(a, c, kLanes);
        if (c < channel_end) convolve<kTaps, false>(a, c, channel_end - c);
      });
}

// Columns [column, column + kColumns * 16) of the values. `decays`: room for key_dim numbers.
template <int kColumns, bool kWhole>
void delta_columns(const GatedDeltaArgs& a, int column, int count) {
  alignas(64) float decays[kMaxKeyDim];
  store(decays, Floats16::all(1.0f));
  const size_t decay_step = a.gate && a.gate_per_key ? 1 : 0;
  for (int row = 0; row < a.rows; ++row) {
    const auto r = static_cast<size_t>(row);
    const float *q = a.q + r * a.q_stride, *k = a.k + r * a.k_stride, *v = a.v + r * a.v_stride + column;
    if (a.gate) {
      const float* gate = a.gate + r * a.gate_stride;
      for_lanes(
          a.gate_per_key ? a.key_dim : 1, [&]<bool kWholeGate>(int i, int gates) __attribute__((always_inline)) {
            store<kWholeGate>(decays + i, exp(load<kWholeGate>(gate + i, gates)), gates);
          });
    }
    const auto decayed = [&](const float* s, int i, int c) __attribute__((always_inline)) {
      return mul(load<kWhole>(s + c * kLanes, count), Floats16::all(decays[static_cast<size_t>(i) * decay_step]));
    };
    Floats16 recalled[kColumns], delta[kColumns], out[kColumns];
    QUIRE_UNROLL
    for (int c = 0; c < kColumns; ++c) recalled[c] = out[c] = Floats16::all(0.0f);
    const float* from = a.state + column;
    for (int i = 0; i < a.key_dim; ++i, from += a.value_dim) {
      QUIRE_UNROLL
      for (int c = 0; c < kColumns; ++c) recalled[c] = fma(decayed(from, i, c), Floats16::all(k[i]), recalled[c]);
    }
    const Floats16 beta = Floats16::all(a.beta[r * a.beta_stride]);
    QUIRE_UNROLL
    for (int c = 0; c < kColumns; ++c) delta[c] = mul(beta, sub(load<kWhole>(v + c * kLanes, count), recalled[c]));
    float* s = a.state + column;
    for (int i = 0; i < a.key_dim; ++i, s += a.value_dim) {
      QUIRE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const Floats16 value = fma(Floats16::all(k[i]), delta[c], decayed(s, i, c));
        store<kWhole>(s + c * kLanes, value, count);
        out[c] = fma(value, Floats16::all(q[i]), out[c]);
      }
    }
    float* to = a.out + r * a.out_stride + column;
    QUIRE_UNROLL
    for (int c = 0; c < kColumns; ++c) store<kWhole>(to + c * kLanes, out[c], count);
    if (row == a.checkpoint.row)
      copy_columns<kColumns, kWhole>(a.state, a.key_dim, a.value_dim, column, count, a.checkpoint.state);
  }
}
void gated_delta(const GatedDeltaArgs& a) {
  for_columns(
      a.value_dim, [&]<int kColumns, bool kWhole>(int column, int count)
                       __attribute__((always_inline)) { delta_columns<kColumns, kWhole>(a, column, count); });
}

template <int kColumns, bool kWhole>
void mamba2_columns(const Mamba2Args& a, int column, int count) {
  for (int row = 0; row < a.rows; ++row) {
    const auto r = static_cast<size_t>(row);
    const float *b = a.b + r * a.b_stride, *c = a.c + r * a.c_stride, *x_row = a.x + r * a.x_stride + column;
    const Floats16 dt = Floats16::all(a.dt[r * a.dt_stride]), decay = exp(mul(dt, Floats16::all(a.a)));
    Floats16 x[kColumns], step[kColumns], sum[kColumns];
    QUIRE_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      x[j] = load<kWhole>(x_row + j * kLanes, count);
      step[j] = mul(dt, x[j]);
      sum[j] = Floats16::all(0.0f);
    }
    float* s = a.state + column;
    for (int i = 0; i < a.state_dim; ++i, s += a.head_dim) {
      QUIRE_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        const Floats16 value = fma(Floats16::all(b[i]), step[j], mul(decay, load<kWhole>(s + j * kLanes, count)));
        store<kWhole>(s + j * kLanes, value, count);
        sum[j] = fma(value, Floats16::all(c[i]), sum[j]);
      }
    }
    float* y = a.y + r * a.y_stride + column;
    QUIRE_UNROLL
    for (int j = 0; j < kColumns; ++j) store<kWhole>(y + j * kLanes, fma(Floats16::all(a.d), x[j], sum[j]), count);
    if (row == a.checkpoint.row)
      copy_columns<kColumns, kWhole>(a.state, a.state_dim, a.head_dim, column, count, a.checkpoint.state);
  }
}
void mamba2(const Mamba2Args& a) {
  for_columns(
      a.head_dim, [&]<int kColumns, bool kWhole>(int column, int count)
                      __attribute__((always_inline)) { mamba2_columns<kColumns, kWhole>(a, column, count); });
}

}  // namespace
}  // namespace quire::QUIRE_ISA
