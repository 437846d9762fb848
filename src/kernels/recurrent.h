// Contracts of the kernels that carry a state from token to token. They go through the rows of one sequence one by one,
// so that no cut of a prompt into chunks changes a bit. All numbers are float32.
#pragma once

#include <cstddef>

#include "kernels/types.h"

namespace quire {

// A copy of the state as it is after a row: where a cached prefix or an accepted draft ends.
struct StateCheckpoint {
  int row = -1;            // index among the call's rows; -1: none
  float* state = nullptr;  // as large as the state
};

// A causal convolution of each channel with its last `width` inputs:
//
//   sum = fma(weight[t], input[t], .) from 0, t = 0 (the oldest) .. width - 1 (this row's x)
//   y   = sum + bias, or silu(sum + bias)
//
// The caller cuts the channels into tiles.
struct ShortConvArgs {
  const float* x;   // [rows, channels], from the first row on
  size_t x_stride;  // floats
  float* y;         // may be x
  size_t y_stride;
  int rows, channels;
  int width;                    // 2 .. kMaxConvWidth
  const float* weight;          // [width][channels]
  const float* bias = nullptr;  // [channels]
  bool silu = false;
  float* state;  // [width - 1][channels]: the last inputs, the oldest first
  StateCheckpoint checkpoint{};
};
// The gated delta rule (Yang et al. 2024, arXiv:2412.06464) for one value head. S [key_dim][value_dim] is the state. For
// each row:
//
//   S   = exp(gate) S           gate: one number, or one for each row of S
//   r   = S^T k                 fma(S, k, .) from 0, in the order of key_dim
//   d   = beta (v - r)
//   S   = fma(k, d, S)
//   out = S^T q                 fma(S, q, .) from 0, in the order of key_dim
//
// q and k are already normalized and scaled.
struct GatedDeltaArgs {
  const float *q, *k;  // [rows, key_dim]
  size_t q_stride, k_stride;
  const float* v;  // [rows, value_dim]
  size_t v_stride;
  const float* gate;  // [rows], or [rows, key_dim] if `gate_per_key`; nullptr: 0
  size_t gate_stride = 1;
  bool gate_per_key = false;
  const float* beta;  // [rows]
  size_t beta_stride = 1;
  float* out;  // [rows, value_dim]; may be v
  size_t out_stride;
  int rows, key_dim, value_dim;
  float* state;
  StateCheckpoint checkpoint{};
};

// The state-space recurrence of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060) for one head. S [state_dim][head_dim] is the
// state. For each row:
//
//   S = fma(B, dt x, exp(dt a) S)
//   y = fma(d, x, S^T C)        S^T C = fma(S, C, .) from 0, in the order of state_dim
struct Mamba2Args {
  const float* x;  // [rows, head_dim]
  size_t x_stride;
  const float *b, *c;  // [rows, state_dim]
  size_t b_stride, c_stride;
  const float* dt;  // [rows], after softplus
  size_t dt_stride = 1;
  float a, d;  // the head's; a < 0
  float* y;    // [rows, head_dim]; may be x
  size_t y_stride;
  int rows, state_dim, head_dim;
  float* state;
  StateCheckpoint checkpoint{};
};

}  // namespace quire
