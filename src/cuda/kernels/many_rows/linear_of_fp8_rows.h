// Linears of FP8 weights with FP8 inputs, by products of warpgroups (sm_90a), for any number of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/fp8/inputs.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/many_rows/chunk_copies.h"
#include "cuda/kernels/many_rows/row_tiles.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// As LinearOfManyRows: a block has kPanels panels, one for each warp, and kColumns rows of inputs; weights and inputs come through
// shared memory, kStages chunks of 128 inputs deep. Codes are multiplied as they are.
//
// The definition of a sum, for each number of columns:
//
//   t     = products of kTogether blocks of 32 inputs, added to 0
//   acc   = fma(t, scale, acc)      over the chunks of a range
//
// and the ranges, which begin at multiples of a chunk, are added in order; the row's scale, a power of two, then multiplies the sum.
// The matrix unit keeps fewer digits of a sum than float32 has, so few products are added there: those of 128 inputs if they have one
// scale, else those of 32 (DeepSeek-V3, arXiv 2412.19437, section 3.3.2, adds 128 too).
template <int kOfColumns, int kTogether>
struct LinearOfFp8Rows {
  static constexpr const char* kName = "linear_of_fp8_rows";
  static constexpr bool kWaits = true;
  static constexpr int kGroups = 2, kThreads = kGroups * 128, kPanels = kGroups * 4;
  static constexpr int kColumns = kOfColumns, kCluster = 1;
  static constexpr int kChunkBlocks = 4;  // a row of a chunk has 128 bytes
  static constexpr int kParts = kChunkBlocks / kTogether;
  // While one half of the columns is multiplied, the other is scaled.
  static constexpr int kHalves = kColumns >= 64 ? 2 : 1, kHalf = kColumns / kHalves;
  static constexpr int kInputBytes = kColumns * kChunkBlocks * kFp8Block;
  static constexpr int kCodeBytes = kCodeBlockBytes<Codes::kE4M3>;  // of a block of a panel
  static constexpr int kPanelBytes = kChunkBlocks * kCodeBytes;
  static constexpr int kStageBytes = kInputBytes + kPanels * kPanelBytes, kStages = 4;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static_assert(kColumns * kTileFloats<kPanels> * 4 <= kSharedBytes && kStageBytes % 1024 == 0);

  LinearWork work;
  RowTiles tiles;

  DEVICE static int first_chunk(int blocks, int range) {
    return (blocks + kChunkBlocks - 1) / kChunkBlocks * range / kSplits;
  }

  // The copies of a thread: of rows, and 16 bytes of each block of its warp's panel.
  struct Copies {
    RowCopies<kColumns, kThreads> inputs;
    Global<const uint8_t> codes;
    int codes_to, blocks;  // codes_to: in the stage; blocks: of the matrix
  };
  DEVICE void copy_chunk(const Copies& c, int chunk, int end, int stage) const {
    if (chunk >= end) return;
    const auto to = shared<uint8_t>(static_cast<size_t>(stage * kStageBytes));
    const int blocks = c.blocks - chunk * kChunkBlocks;  // from this chunk on
    const auto codes = c.codes + static_cast<ptrdiff_t>(chunk) * kPanelBytes;
    UNROLL
    for (int b = 0; b < kChunkBlocks; ++b)
      copy_async<16>(to + (c.codes_to + b * kCodeBytes), codes + (b < blocks ? b * kCodeBytes : 0), b < blocks);
    c.inputs.start(chunk, c.inputs.piece < 2 * blocks, to);
  }

  // Codes are the words of the product, as they are.
  struct Fragments {
    CodeWords<Codes::kE4M3> a[kChunkBlocks];
  };
  DEVICE static void load_weights(int stage, Fragments& to) {
    const auto panel =
        shared<const uint8_t>(static_cast<size_t>(stage * kStageBytes + kInputBytes)) + warp() * kPanelBytes;
    UNROLL
    for (int b = 0; b < kChunkBlocks; ++b) load_swizzled<Codes::kE4M3>(panel, b, to.a[b]);
  }

  DEVICE void operator()() const {
    RowTile tile = tile_of_block<kPanels, kColumns>(tiles);
    const LinearMatrix& m = find_matrix(work, tile.panel, kPanels);
    const WeightShape& w = m.w;
    const int g = lane() / 4, i = lane() % 4;
    const int own = tile.panel + warp(), panels = panels_of(w);
    const auto own_panel = m.data + static_cast<ptrdiff_t>(own < panels ? own : 0) * w.panel_bytes;

    const Copies copies{{work.x, tile.row, work.rows},
                        own_panel + (w.codes + 16 * lane()),
                        kInputBytes + warp() * kPanelBytes + swizzled_codes<Codes::kE4M3>(16 * lane()),
                        w.blocks};

    const int begin = first_chunk(w.blocks, tile.range_begin), end = first_chunk(w.blocks, tile.range_end);
    UNROLL
    for (int k = 0; k < kStages - 1; ++k) {  // while earlier launches finish
      const int at = begin * kPanelBytes + (k * 32 + lane()) * 64;
      if (at < w.blocks * kCodeBytes) prefetch(own_panel + (w.codes + at));
    }
    wait_previous();

    int stage = 0, next_stage = kStages - 1;
    UNROLL
    for (int k = 0; k < kStages - 1; ++k) {
      copy_chunk(copies, begin + k, end, k);
      commit_copies();
    }
    wait_copies<kStages - 2>();
    fence_shared();
    sync_block();
    Fragments weights[2];
    if (begin < end) load_weights(0, weights[0]);  // else the range is empty

    // As in LinearOfManyRows: the next chunk has come, and all warps are done with the one before, whose memory is filled again.
    const auto advance = [&](int chunk, Fragments& to) {
      wait_copies<kStages - 3>();
      fence_shared();
      sync_block();
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if (chunk + 1 < end) load_weights(stage, to);
      copy_chunk(copies, chunk + kStages - 1, end, next_stage);
      commit_copies();
      next_stage = next_stage + 1 == kStages ? 0 : next_stage + 1;
    };

    float total[kColumns / 2], acc[kColumns / 2], products[kHalves][kHalf / 2];
    UNROLL
    for (float& v : total) v = 0;
    UNROLL
    for (float& v : acc) v = 0;

    ScaleWords words[kParts] = {};
    const auto load_words = [&](int chunk) {
      UNROLL
      for (int q = 0; q < kParts; ++q) {
        const int block = chunk * kChunkBlocks + q * kTogether;
        if (chunk < end && block < w.blocks) load_scales(w, own_panel, block, 0, g, words[q]);
      }
    };
    load_words(begin);

    const auto multiply_chunk = [&](int chunk, const Fragments& now, Fragments& next) {
      const auto rows = shared<const uint8_t>(static_cast<size_t>(stage * kStageBytes));
      Scales scales[kParts];
      UNROLL
      for (int q = 0; q < kParts; ++q) scales[q] = convert_scales(w, words[q]);
      load_words(chunk + 1);
      const auto issue = [&](int q, int half) {
        fence_products();
        UNROLL
        for (int t = 0; t < kTogether; ++t) {
          const int b = q * kTogether + t;
          multiply_e4m3_wide<kHalf>(products[half], now.a[b].w,
                                    product_rows(rows + (half * kHalf * 128 + b * kFp8Block)), t > 0);
        }
        commit_products();
      };
      const auto scale_half = [&](int q, int half) {
        UNROLL
        for (int n = 0; n < kHalf / 2; ++n) {
          float& to = acc[half * (kHalf / 2) + n];
          to = fma_of(products[half][n], scales[q].scale[n / 2 % 2], to);
        }
      };
      UNROLL
      for (int q = 0; q < kParts; ++q) {
        if constexpr (kHalves == 1) {
          if (q > 0) {
            wait_products<0>();
            scale_half(q - 1, 0);
          }
          issue(q, 0);
        } else {
          issue(q, 0);
          if (q > 0) {
            wait_products<1>();
            scale_half(q - 1, 1);
          }
          issue(q, 1);
          wait_products<1>();
          scale_half(q, 0);
        }
      }
      advance(chunk, next);
      wait_products<0>();
      scale_half(kParts - 1, kHalves - 1);
    };

    int chunk = begin;
    for (int range = tile.range_begin; range < tile.range_end; ++range) {
      const int stop = first_chunk(w.blocks, range + 1);
      if (chunk >= stop) continue;
      for (; chunk + 1 < stop; chunk += 2) {
        multiply_chunk(chunk, weights[0], weights[1]);
        multiply_chunk(chunk + 1, weights[1], weights[0]);
      }
      if (chunk < stop) {
        multiply_chunk(chunk, weights[0], weights[1]);
        weights[0] = weights[1];
        ++chunk;
      }
      UNROLL
      for (int n = 0; n < kColumns / 2; ++n) total[n] += acc[n], acc[n] = 0;
    }

    UNROLL
    for (int n = 0; n < kColumns / 2; n += 4) {
      UNROLL
      for (int e = 0; e < 2; ++e) {
        const int row = tile.row + n / 4 * 8 + 2 * i + e;
        if (row >= work.rows) continue;
        const float scale =
            cast<const float>(work.x.data + (static_cast<ptrdiff_t>(row) * work.x.stride + w.blocks * kFp8Block))[0];
        total[n + e] *= scale, total[n + 2 + e] *= scale;
      }
    }
    write_tile<kPanels, kColumns, kThreads>(work, m, tiles, tile, total, [] { sync_block(); });
  }
};

}  // namespace quire::cuda
