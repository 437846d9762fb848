// What linears of many rows with bf16 weights share on GPUs with warpgroups (sm_90a): how a block's two computing warpgroups multiply.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/many_rows/row_tiles.h"
#include "cuda/kernels/products.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// A block has kPanels panels, one for each warp of two warpgroups that compute, and kColumns rows of inputs, which a third
// warpgroup brings to shared memory, kStages chunks of 64 inputs deep, in the 128-byte swizzle. Weights go from global memory to
// the registers that products read, two chunks ahead: only one warp reads them, and shared memory has no time left.
//
// The bits are those of LinearOfManyRows, which does the same for weights that are decoded.
//
// kOfParts: the launch has parts (for_tiles()), and each thread has waited for earlier launches.
template <int kOfColumns, bool kOfParts = false>
struct Bf16Tiles {
  static constexpr int kComputing = 256, kBringing = 128, kThreads = kComputing + kBringing;
  static constexpr int kPanels = kComputing / 32, kColumns = kOfColumns, kChunkBlocks = 2;
  // With 256 columns registers have room for the sums of one range, and the totals are in shared memory, next to fewer stages.
  static constexpr bool kTotalsShared = kColumns > 128;
  static constexpr int kStages = kTotalsShared ? 3 : 8, kStageBytes = kColumns * kChunkBlocks * kPreparedBlock;
  static constexpr int kTotalsAt = kStages * kStageBytes, kSums = kColumns / 2;  // of a thread
  static constexpr int kSharedBytes = kTotalsAt + (kTotalsShared ? kComputing * kSums * 4 : 0);
  static constexpr int kWritten = kTotalsShared ? 128 : kColumns;  // columns of results that are written together
  static_assert(kWritten * kTileFloats<kPanels> * 4 <= kTotalsAt);
  static constexpr int kBlockBytes = static_cast<int>(code_block_bytes(Codes::kBf16));

  struct Tile : RowTile {
    int begin, end;  // the chunks of its ranges
  };

  DEVICE static int first_chunk(const WeightShape& w, int range) {
    return (range_begin(w.blocks, range) + kChunkBlocks - 1) / kChunkBlocks;
  }
  DEVICE static Tile with_chunks(const RowTile& tile, const WeightShape& w) {
    return {tile, first_chunk(w, tile.range_begin), first_chunk(w, tile.range_end)};
  }
  // Where the inputs of a chunk lie in shared memory.
  DEVICE static Shared<uint8_t> stage_of(const Tile& tile, int chunk) {
    return shared<uint8_t>(static_cast<size_t>((chunk - tile.begin) % kStages * kStageBytes));
  }

  // The sums of the ranges so far, added in order: in registers, or in shared memory of each thread's own.
  struct Totals {
    float total[kTotalsShared ? 1 : kSums] = {};

    DEVICE static Shared<float> of_thread() { return shared<float>(kTotalsAt) + 4 * thread(); }
    DEVICE void clear() {
      if constexpr (kTotalsShared) {
        UNROLL
        for (int n = 0; n < kSums; n += 4) store(of_thread() + n * kComputing, Words<4>{});
      }
    }
    // Adds the sums of a range.
    DEVICE void add(const float (&acc)[kSums]) {
      UNROLL
      for (int n = 0; n < kSums; n += 4) {
        if constexpr (kTotalsShared) {
          Words<4> four = load<4>(of_thread() + n * kComputing);
          UNROLL
          for (int k = 0; k < 4; ++k) four.w[k] = float_bits(bits_float(four.w[k]) + acc[n + k]);
          store(of_thread() + n * kComputing, four);
        } else {
          UNROLL
          for (int k = 0; k < 4; ++k) total[n + k] += acc[n + k];
        }
      }
    }
    // Those from number `first` on. room: may be overwritten.
    template <int N>
    DEVICE const float (&get(int first, float (&room)[N]) const)[N] {
      if constexpr (!kTotalsShared) {
        static_assert(N == kSums);
        return total;
      } else {
        UNROLL
        for (int n = 0; n < N; n += 4) {
          const Words<4> four = load<4>(of_thread() + (first + n) * kComputing);
          UNROLL
          for (int k = 0; k < 4; ++k) room[n + k] = bits_float(four.w[k]);
        }
        return room;
      }
    }
  };

  // The weights of a chunk as multiply_bf16_wide() reads them: [blocks][steps][words].
  struct Weights {
    uint32_t a[kChunkBlocks][2][4];
  };
  // lane: where the lane's weights of the panel begin.
  DEVICE static void load_chunk(Global<const uint8_t> lane, int chunk, int blocks, Weights& to) {
    UNROLL
    for (int b = 0; b < kChunkBlocks; ++b) {
      const auto block = lane + static_cast<ptrdiff_t>(chunk * kChunkBlocks + b) * kBlockBytes;
      const bool exists = b == 0 || chunk * kChunkBlocks + b < blocks;
      UNROLL
      for (int j = 0; j < 4; ++j) {
        const Words<2> pair = exists ? load<2>(block + 64 * j) : Words<2>{};
        to.a[b][j / 2][2 * (j % 2)] = pair.w[0], to.a[b][j / 2][2 * (j % 2) + 1] = pair.w[1];
      }
    }
  }

  // What a thread of the computing warpgroups does. ahead: LinearWork's. came(chunk) returns when the inputs of a chunk are in
  // their stage; done(chunk): the warp reads them no more.
  template <class Came, class Done>
  DEVICE static void compute(const LinearPart& matrix, int ahead, const RowTiles& tiles, const LinearMatrix& m,
                             const Tile& tile, const Came& came, const Done& done) {
    const WeightShape& w = m.w;
    const int g = lane() / 4, i = lane() % 4, own = tile.panel + warp();
    const auto codes = matrix.data + (static_cast<ptrdiff_t>(own < panels_of(w) ? own : 0) * w.panel_bytes + w.codes);
    const auto weights_of_lane = codes + (256 * i + 8 * g);
    // Fetches a chunk to the L2 cache, a line by each of half the lanes.
    const auto fetch_chunk = [&](int chunk) {
      constexpr int kLine = 128, kChunkBytes = kChunkBlocks * kBlockBytes;
      const int at = chunk * kChunkBytes + kLine * lane();
      if (chunk < tile.end && lane() < kChunkBytes / kLine && at < w.blocks * kBlockBytes) prefetch(codes + at);
    };
    ROLLED
    for (int k = 0; k < ahead; ++k) fetch_chunk(tile.begin + k);
    Weights weights[3];
    load_chunk(weights_of_lane, tile.begin, w.blocks, weights[0]);
    if (tile.begin + 1 < tile.end) load_chunk(weights_of_lane, tile.begin + 1, w.blocks, weights[1]);
    if constexpr (!kOfParts) wait_previous();

    Totals totals;
    totals.clear();
    float acc[kSums];
    UNROLL
    for (float& v : acc) v = 0;
    int chunk = tile.begin, range = tile.range_begin, stop = first_chunk(w, range + 1);
    while (chunk >= stop && range + 1 < tile.range_end) stop = first_chunk(w, ++range + 1);  // empty ranges
    bool adds = false;
    // Multiplies a chunk, and loads the next but one in place of the weights of the chunk before. Whether it was the last.
    const auto multiply = [&](const Weights& now, Weights& before) {
      const Shared<const uint8_t> rows = stage_of(tile, chunk);
      came(chunk);
      fence_products();
      UNROLL
      for (int b = 0; b < kChunkBlocks; ++b) {
        UNROLL
        for (int s = 0; s < 2; ++s)
          multiply_bf16_wide<kColumns>(acc, now.a[b][s], product_rows(rows + (b * 64 + s * 32)), adds || b + s > 0);
      }
      commit_products();
      adds = true;
      wait_products<1>();
      if (chunk > tile.begin) done(chunk - 1);
      if (chunk + 2 < tile.end) load_chunk(weights_of_lane, chunk + 2, w.blocks, before);
      if (ahead > 0) fetch_chunk(chunk + ahead);
      if (++chunk < stop) return false;
      wait_products<0>();
      hold_products(acc);
      totals.add(acc);
      adds = false;
      while (chunk >= stop && range + 1 < tile.range_end) stop = first_chunk(w, ++range + 1);
      return chunk >= tile.end;
    };
    if (chunk < tile.end) {
      while (true) {
        if (multiply(weights[0], weights[2])) break;
        if (multiply(weights[1], weights[0])) break;
        if (multiply(weights[2], weights[1])) break;
      }
    }
    // All are done, which nvcc does not see: where a block goes on with other rows, it would run products one by one.
    wait_products<0>();
    Tile part = tile;
    for (int first = 0; first < kColumns; first += kWritten, part.row += kWritten) {
      float room[kWritten / 2];
      write_tile<kPanels, kWritten, kComputing>(m, matrix, tiles, part, totals.get(first / 2, room),
                                                [] { sync_part(3, kComputing); });
    }
  }
};

}  // namespace quire::cuda
