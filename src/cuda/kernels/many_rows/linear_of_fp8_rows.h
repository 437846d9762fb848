// Linears of FP8 weights with FP8 inputs, by products of warpgroups (sm_90a), for any number of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/fp8/inputs.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/many_rows/byte_chunks.h"
#include "cuda/kernels/many_rows/chunk_copies.h"
#include "cuda/kernels/many_rows/row_tiles.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// As LinearOfManyRows, by ByteChunks: codes are multiplied as they are.
//
// The definition of a sum, for each number of columns:
//
//   t     = products of kTogether blocks of 32 inputs, added to 0
//   acc   = fma(t, scale, acc)      over the chunks of a range
//
// and the ranges, which begin at multiples of a chunk, are added in order; the row's scale, a power of two, then multiplies the sum.
// The matrix unit keeps fewer digits of a sum than float32 has, so few products are added there: those of 128 inputs if they have one
// scale, else those of 32 (DeepSeek-V3, arXiv 2412.19437, section 3.3.2, adds 128 too).
//
// kOfParts: for_tiles().
template <int kOfColumns, int kTogether, bool kOfParts = false>
struct LinearOfFp8Rows {
  static constexpr const char* kName = "linear_of_fp8_rows";
  static constexpr bool kWaits = true;
  using Chunks = ByteChunks<kOfColumns, Codes::kE4M3>;
  static constexpr int kThreads = Chunks::kThreads, kPanels = Chunks::kPanels;
  static constexpr int kColumns = kOfColumns, kCluster = 1, kSharedBytes = Chunks::kSharedBytes;
  static constexpr int kChunkBlocks = Chunks::kBlocks, kParts = kChunkBlocks / kTogether;
  // While one half of the columns is multiplied, the other is scaled.
  static constexpr int kHalves = kColumns >= 64 ? 2 : 1, kHalf = kColumns / kHalves;

  LinearWork work;
  RowTiles tiles;

  // Codes are the words of the product, as they are.
  struct Fragments {
    CodeWords<Codes::kE4M3> a[kChunkBlocks];
  };
  DEVICE static void load_weights(int stage, Fragments& to) {
    UNROLL
    for (int b = 0; b < kChunkBlocks; ++b) load_swizzled<Codes::kE4M3>(Chunks::own_codes(stage), b, to.a[b]);
  }

  DEVICE void multiply(const LinearMatrix& m, const LinearPart& part, const RowTile& tile) const {
    const WeightShape& w = m.w;
    const int g = lane() / 4, i = lane() % 4;
    const Chunks chunks(w, part, tile, work.x.stride, swizzled_codes<Codes::kE4M3>(16 * lane()));
    const int begin = chunks.begin, end = chunks.end;
    chunks.prefetch_codes();
    if constexpr (!kOfParts) wait_previous();

    typename Chunks::Stages stages = chunks.start_first();
    Fragments weights[2];
    if (begin < end) load_weights(0, weights[0]);  // else the range is empty

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
        if (chunk < end && block < w.blocks) load_scales(w, chunks.panel, block, 0, g, words[q]);
      }
    };
    load_words(begin);

    const auto multiply_chunk = [&](int chunk, const Fragments& now, Fragments& next) {
      const auto rows = Chunks::inputs(stages.now);
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
      chunks.advance(stages, chunk, [&](int stage) { load_weights(stage, next); });
      wait_products<0>();
      scale_half(kParts - 1, kHalves - 1);
    };

    int chunk = begin;
    for (int range = tile.range_begin; range < tile.range_end; ++range) {
      const int stop = Chunks::first_chunk(w.blocks, range + 1);
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
        if (row >= part.rows) continue;
        const float scale =
            cast<const float>(part.x + (static_cast<ptrdiff_t>(row) * work.x.stride + w.blocks * kFp8Block))[0];
        total[n + e] *= scale, total[n + 2 + e] *= scale;
      }
    }
    write_tile<kPanels, kColumns, kThreads>(m, part, tiles, tile, total, [] { sync_block(); });
  }

  DEVICE void operator()() const {
    for_tiles<LinearOfFp8Rows, kOfParts>(
        *this, [this](const LinearMatrix& m, const LinearPart& part, const RowTile& tile) { multiply(m, part, tile); });
  }
};

}  // namespace quire::cuda
