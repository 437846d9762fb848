// Queries, keys and values of a step between their projections and attention: norms, clipping, rotation, the cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/store_kv.h"
#include "kernels/types.h"

namespace quire::cuda {

// NormArgs (kernels/rows.h) of runs of a row.
struct RunNorm {
  Global<const float> weight, bias;  // nullptr: none
  uint64_t weight_stride;            // floats from a run's weights to the next run's
  float epsilon;
  NormKind kind;
};

// Normalizes x [size] in place, run number `run` of a row, by one warp. Both halves of the warp take the same sums, in the 16 chains
// of the CPU. The whole warp must have written x, if it is in shared memory; it sees the result.
template <class Memory>
DEVICE void normalize_run(const RunNorm& norm, Memory x, int size, int run) {
  const auto sum_of = [&](auto add) {
    float chain = 0;
    for (int i = lane() % 16; i < size; i += 16) chain = add(chain, x[i]);
    for (int mask = 8; mask > 0; mask /= 2) chain = chain + shuffle_xor(chain, mask);
    return chain;
  };
  const float count = static_cast<float>(size);
  const float mean =
      norm.kind == NormKind::kLayer ? sum_of([](float sum, float number) { return sum + number; }) / count : 0.0f;
  const float squares = sum_of([mean](float sum, float number) { return fma_of(number - mean, number - mean, sum); });
  const float factor = 1.0f / sqrt_of((norm.kind == NormKind::kL2 ? squares : squares / count) + norm.epsilon);
  const uint64_t weights = static_cast<uint64_t>(run) * norm.weight_stride;
  sync_warp();  // all have read x
  for (int i = lane(); i < size; i += 32) {
    float value = (x[i] - mean) * factor;
    if (norm.weight != nullptr) value = value * norm.weight[weights + static_cast<uint64_t>(i)];
    if (norm.bias != nullptr) value = value + norm.bias[weights + static_cast<uint64_t>(i)];
    x[i] = value;
  }
  sync_warp();
}

// Normalizes runs of rows in place: for norms of other runs than heads. A warp takes one run of one row.
struct NormalizeRuns {
  static constexpr const char* kName = "normalize_runs";
  static constexpr int kThreads = 128;
  Global<float> x;
  uint64_t stride;
  int rows, runs, size;
  RunNorm norm;

  DEVICE void operator()() const {
    const int i = block_x() * (kThreads / 32) + warp();
    if (i >= rows * runs) return;
    normalize_run(norm, x + (static_cast<uint64_t>(i / runs) * stride + static_cast<uint64_t>(i % runs * size)), size,
                  i % runs);
  }
};

// Consecutive rows whose tokens lie in one page.
struct PageRun {
  int row, rows;
  int page, slot;  // of the first row
};

// A warp takes one head of the queries, keys or values, for the rows of a run. Queries are changed in place; keys and values go to the
// cache, in order, and also stay in place if there are norms to come. Shared memory: for each warp a head of floats and its codes.
struct PositionHeads {
  static constexpr const char* kName = "position_heads";
  static constexpr int kThreads = 128;
  static constexpr int kWarps = kThreads / 32;

  struct Vectors {
    Global<float> data;
    uint64_t stride;  // floats from row to row
    int heads, dim;
    RunNorm norm;  // kNone: none
  };

  Vectors q, k, v;
  KvPages pages;
  HeadTurn turn_key, turn_value;
  Global<const PageRun> runs;
  Global<const float> cos_sin;   // of row 0
  Global<const float> q_scales;  // nullptr: none
  uint64_t cos_sin_stride;
  float clip;
  int rope_dim, rope_offset;
  RopeKind kind;
  bool norm_after_rope, positions, stores;  // stores: else keys and values are written back

  // Bytes of shared memory for each warp and number of the largest head.
  static constexpr int kNumberBytes = 5;
  int most_padded;  // numbers of a padded head, a multiple of 16

  DEVICE void rotate(Shared<float> x, int row) const {
    const Global<const float> angles = cos_sin + static_cast<uint64_t>(row) * cos_sin_stride;
    const int pairs = rope_dim / 2;
    for (int i = lane(); i < pairs; i += 32) {
      const int first = rope_offset + (kind == RopeKind::kHalves ? i : 2 * i),
                second = kind == RopeKind::kHalves ? first + pairs : first + 1;
      const float c = angles[2 * i], s = angles[2 * i + 1], a = x[first], b = x[second];
      x[first] = fma_of(a, c, -(b * s));
      x[second] = fma_of(a, s, b * c);
    }
    sync_warp();
  }

  DEVICE void operator()() const {
    const int unit = block_y() * kWarps + warp();
    if (unit >= q.heads + k.heads + v.heads) return;
    const bool is_q = unit < q.heads, is_k = !is_q && unit < q.heads + k.heads;
    const Vectors& from = is_q ? q : is_k ? k : v;
    const int head = is_q ? unit : is_k ? unit - q.heads : unit - q.heads - k.heads;
    const Shared<float> x = shared<float>(static_cast<size_t>(warp() * kNumberBytes * most_padded));
    const Shared<uint8_t> codes =
        shared<uint8_t>(static_cast<size_t>(warp() * kNumberBytes * most_padded + 4 * most_padded));
    const PageRun run = runs[block_x()];
    for (int r = 0; r < run.rows; ++r) {
      const int row = run.row + r;
      const Global<float> numbers =
          from.data + (static_cast<uint64_t>(row) * from.stride + static_cast<uint64_t>(head * from.dim));
      const bool stored = !is_q && stores;
      // Rotation for the cache (kernels/head_rotation.h) reads zeros after a head.
      for (int i = lane(); i < (from.dim + 15) / 16 * 16; i += 32) x[i] = i < from.dim ? numbers[i] : 0.0f;
      sync_warp();
      if (positions) position(from, is_q, is_k, head, row, x);
      if (!stored) {
        for (int i = lane(); i < from.dim; i += 32) numbers[i] = x[i];
      } else {
        store_vector(pages, {pages.head(run.page, head), run.slot + r, is_k}, is_k ? turn_key : turn_value, x, codes);
      }
      sync_warp();
    }
  }

  DEVICE void position(const Vectors& from, bool is_q, bool is_k, int head, int row, Shared<float> x) const {
    const bool is_value = !is_q && !is_k, norms = from.norm.kind != NormKind::kNone;
    if (norms && (is_value || !norm_after_rope)) normalize_run(from.norm, x, from.dim, head);
    const float scale = is_q && q_scales != nullptr ? q_scales[row] : 1.0f;
    if (clip > 0 || scale != 1) {
      for (int i = lane(); i < from.dim; i += 32) {
        float number = x[i];
        if (clip > 0) number = number < -clip ? -clip : clip < number ? clip : number;
        x[i] = number * scale;
      }
      sync_warp();
    }
    if (!is_value && kind != RopeKind::kNone) rotate(x, row);
    if (norms && norm_after_rope && !is_value) normalize_run(from.norm, x, from.dim, head);
  }
};

}  // namespace quire::cuda
