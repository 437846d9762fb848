// Attention: queries and keys are rotated, keys and values go to the cache, and queries read it.
#pragma once

#include <cstdint>

#include "ops/cache_memory.h"
#include "ops/rows.h"

namespace quire {

// Rows of one sequence in a step, at consecutive positions.
struct AttentionSpan {
  const int32_t* pages;  // the sequence's page table
  int row, rows;
  int position;  // the first row's
};

// What happens to queries, keys and values between their projections and attention.
struct PositionArgs {
  Rows q, k, v;  // k and v: of no columns if another layer has stored them
  int heads, key_dim, value_dim;
  HeadNorm q_norm, k_norm, v_norm;
  bool norm_after_rope = false;  // queries and keys are normalised after rotation
  float clip = 0;                // 0: none
  // Rotation: the cosines and sines of each row's position; kNone: none.
  RopeKind kind = RopeKind::kNone;
  int rope_dim = 0, rope_offset = 0;  // elements [offset, offset + dim) of each head
  Rows cos_sin;
  const float* q_scales = nullptr;  // [rows], or nullptr
  const CacheMemory& cache;
  int layer;
};

// Scaled products of queries with the keys that they see, softmax, and the weighted sum of values.
struct AttentionSpec {
  Rows q;    // [rows, heads * key_dim]
  Rows out;  // [rows, heads * value_dim]
  const CacheMemory& cache;
  int layer;  // its number in the cache's layout
  int heads;
  float scale;
  int window = 0;                 // tokens; 0: none
  bool causal = true;             // false: queries see later tokens, too
  float soft_cap = 0;             // 0: none
  const float* slopes = nullptr;  // [heads]: ALiBi
  const float* sinks = nullptr;   // [heads]
};

}  // namespace quire
