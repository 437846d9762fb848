// Recurrent layers. They go through the rows of each sequence one by one, from the state that the cache
// keeps of it, so that no cut of a prompt into steps changes a bit.
#pragma once

#include <cstddef>
#include <span>

#include "ops/cache_memory.h"
#include "ops/rows.h"

namespace quire {

// After row `row` of the span, counted from its first, the state is also copied to `slot`.
struct StateCopy {
  int row, slot;
};

// Rows of one sequence in a step, at consecutive positions. Position 0 starts from a state of zeros.
struct StateSpan {
  int row, rows;
  int position;                       // the first row's
  int slot;                           // the sequence's state
  std::span<const StateCopy> copies;  // ascending rows
};

// What a layer keeps of a sequence, in float32: the last inputs of its convolution, [width - 1][channels], and a matrix
// per head, [heads][rows][cols]. Both begin on a cache line.
struct StateLayout {
  int channels = 0, width = 0;
  int heads = 0, rows = 0, cols = 0;

  size_t inputs() const { return static_cast<size_t>(width - 1) * static_cast<size_t>(channels); }
  size_t matrix() const { return static_cast<size_t>(rows) * static_cast<size_t>(cols); }
  size_t matrices_at() const { return (inputs() + 15) / 16 * 16; }
  size_t bytes() const {
    return (matrices_at() + static_cast<size_t>(heads) * matrix() + 15) / 16 * 16 * sizeof(float);
  }
};

// The states of one layer.
struct LayerStates {
  const CacheMemory& cache;
  int layer;
  StateLayout layout;

  float* inputs(int slot) const { return reinterpret_cast<float*>(cache.state(layer, slot).data()); }
  float* matrix(int slot, int head) const {
    return inputs(slot) + layout.matrices_at() + static_cast<size_t>(head) * layout.matrix();
  }
};

// x = f(convolution(x) + bias): each channel with its last inputs (kernels/recurrent.h).
struct Convolution {
  Rows x;                       // [rows, channels]; overwritten
  const float* weight;          // [width][channels]
  const float* bias = nullptr;  // [channels]
  bool silu = false;
};

// The gated delta rule: v = S^T q, once S has forgotten by the gate and learned that the key k stands for the value v.
// The matrices of the state are [key_dim][value_dim], one per value head.
struct DeltaRule {
  Rows q, k;              // [rows, key_heads * key_dim]; normalized in place, to unit length
  Rows v;                 // [rows, value_heads * value_dim]; overwritten by the results
  Rows decay;             // [rows, value_heads]; the gate is factor * softplus(decay + bias). Overwritten
  Rows beta;              // [rows, value_heads], before the sigmoid; overwritten
  const float* factor;    // [value_heads]
  const float* bias;      // [value_heads]
  int key_heads;          // value heads share them, in groups:
  bool interleaved;       // value head h uses key head h % key_heads, not h / (value_heads / key_heads)
  float epsilon = 1e-6f;  // in the keys' and queries' norms
};

// The recurrence of Mamba-2: S = exp(dt a) S + b (dt x)^T; x = S^T c + d x, for dt = softplus(step + bias). The matrices
// of the state are [state_dim][head_dim].
struct StateSpace {
  Rows x;              // [rows, heads * head_dim]; overwritten by the results
  Rows b, c;           // [rows, groups * state_dim]: consecutive heads share a group's
  Rows step;           // [rows, heads]; overwritten
  const float* bias;   // [heads]
  const float *a, *d;  // [heads]; a < 0
  int groups;
};

}  // namespace quire
