// The definition of the kernels that carry a state from token to token, in plain scalar code.

#include <algorithm>
#include <cmath>

#include "kernels/lanes.h"
#include "kernels/reference.h"

namespace quire::reference {

void short_conv(const ShortConvArgs& a, int channel_begin, int channel_end) {
  const auto channels = static_cast<size_t>(a.channels);
  for (int row = 0; row < a.rows; ++row) {
    for (auto c = static_cast<size_t>(channel_begin); c < static_cast<size_t>(channel_end); ++c) {
      const float x = a.x[static_cast<size_t>(row) * a.x_stride + c];
      float sum = 0;
      for (size_t t = 0; t + 1 < static_cast<size_t>(a.width); ++t) {
        float& past = a.state[t * channels + c];
        sum = std::fma(a.weight[t * channels + c], past, sum);
        past = t + 2 < static_cast<size_t>(a.width) ? a.state[(t + 1) * channels + c] : x;
        if (row == a.checkpoint.row) a.checkpoint.state[t * channels + c] = past;
      }
      sum = std::fma(a.weight[static_cast<size_t>(a.width - 1) * channels + c], x, sum);
      if (a.bias) sum += a.bias[c];
      a.y[static_cast<size_t>(row) * a.y_stride + c] = a.silu ? silu_lane(sum) : sum;
    }
  }
}

void gated_delta(const GatedDeltaArgs& a) {
  const auto keys = static_cast<size_t>(a.key_dim), values = static_cast<size_t>(a.value_dim);
  for (size_t row = 0; row < static_cast<size_t>(a.rows); ++row) {
    const float *q = a.q + row * a.q_stride, *k = a.k + row * a.k_stride, *v = a.v + row * a.v_stride;
    const float beta = a.beta[row * a.beta_stride];
    const auto decay = [&](size_t i) {
      return a.gate ? exp_lane(a.gate[row * a.gate_stride + (a.gate_per_key ? i : 0)]) : 1.0f;
    };
    for (size_t j = 0; j < values; ++j) {
      float recalled = 0, out = 0;
      for (size_t i = 0; i < keys; ++i) recalled = std::fma(a.state[i * values + j] * decay(i), k[i], recalled);
      const float delta = beta * (v[j] - recalled);
      for (size_t i = 0; i < keys; ++i) {
        float& s = a.state[i * values + j];
        s = std::fma(k[i], delta, s * decay(i));
        out = std::fma(s, q[i], out);
      }
      a.out[row * a.out_stride + j] = out;
    }
    if (static_cast<int>(row) == a.checkpoint.row) std::copy_n(a.state, keys * values, a.checkpoint.state);
  }
}

void mamba2(const Mamba2Args& a) {
  const auto states = static_cast<size_t>(a.state_dim), dims = static_cast<size_t>(a.head_dim);
  for (size_t row = 0; row < static_cast<size_t>(a.rows); ++row) {
    const float dt = a.dt[row * a.dt_stride], decay = exp_lane(dt * a.a);
    for (size_t j = 0; j < dims; ++j) {
      const float x = a.x[row * a.x_stride + j];
      float sum = 0;
      for (size_t i = 0; i < states; ++i) {
        float& s = a.state[i * dims + j];
        s = std::fma(a.b[row * a.b_stride + i], dt * x, decay * s);
        sum = std::fma(s, a.c[row * a.c_stride + i], sum);
      }
      a.y[row * a.y_stride + j] = std::fma(a.d, x, sum);
    }
    if (static_cast<int>(row) == a.checkpoint.row) std::copy_n(a.state, states * dims, a.checkpoint.state);
  }
}

}  // namespace quire::reference
