// Linears with whole rows of int8 (kInt8Row) for prompts, by products of warpgroups (sm_90a).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/int8/inputs.h"
#include "cuda/kernels/int8/sums.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/many_rows/byte_chunks.h"
#include "cuda/kernels/many_rows/row_tiles.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// As LinearOfManyRows, by ByteChunks. Products of integers are exact, and a result has one scale, so nothing is done between the
// products of all its inputs.
//
// A product adds over 32 inputs of a row in the order in which they lie in memory. Byte 8 i + 4 h + c of a prepared row is the
// input that lane 4 g + i has as byte c of word h of its codes (kernels/int8/codes.h). For the product, lane 4 g + i needs
// the weights of bytes 4 i .. 4 i + 3 and of those 16 further on: lines i and 4 + i of a panel's block, of eight with 64 bytes.
//
// kOfParts: for_tiles().
template <int kOfColumns, bool kOfParts = false>
struct LinearOfInt8Rows {
  static constexpr const char* kName = "linear_of_int8_rows";
  static constexpr bool kWaits = true;
  using Chunks = ByteChunks<kOfColumns, Codes::kI8>;
  static constexpr int kThreads = Chunks::kThreads, kPanels = Chunks::kPanels;
  static constexpr int kColumns = kOfColumns, kCluster = 1, kSharedBytes = Chunks::kSharedBytes;
  static constexpr int kChunkBlocks = Chunks::kBlocks;

  LinearWork work;
  RowTiles tiles;

  // Lines lie in order. Of the third and fourth of each four, halves are exchanged: so the four i's and eight g's of a warp read
  // from different banks.
  DEVICE static int place(int line, int byte) { return 64 * line + (byte ^ line % 4 / 2 * 32); }

  struct Fragments {
    uint32_t a[kChunkBlocks][4];
  };
  DEVICE static void load_weights(int stage, Fragments& to) {
    const int g = lane() / 4, i = lane() % 4;
    const auto own = Chunks::own_codes(stage) + place(i, 8 * g);
    UNROLL
    for (int b = 0; b < kChunkBlocks; ++b) {
      UNROLL
      for (int h = 0; h < 2; ++h) {
        const Words<2> words = load<2>(own + (b * Chunks::kCodeBytes + 256 * h));
        to.a[b][2 * h] = words.w[0], to.a[b][2 * h + 1] = words.w[1];
      }
    }
  }

  DEVICE void multiply(const LinearMatrix& m, const LinearPart& part, const RowTile& tile) const {
    const WeightShape& w = m.w;
    const Chunks chunks(w, part, tile, work.x.stride, place(lane() / 4, lane() % 4 * 16));
    const int begin = chunks.begin, end = chunks.end;
    chunks.prefetch_codes();
    if constexpr (!kOfParts) wait_previous();

    typename Chunks::Stages stages = chunks.start_first();
    Fragments weights[2];
    if (begin < end) load_weights(0, weights[0]);  // else the range is empty

    int32_t total[kColumns / 2];
    UNROLL
    for (int32_t& v : total) v = 0;
    hold_products(total);

    // next: what the chunk before was multiplied by.
    const auto multiply_chunk = [&](int chunk, const Fragments& now, Fragments& next) {
      fence_products();
      UNROLL
      for (int b = 0; b < kChunkBlocks; ++b)
        multiply_i8_wide<kColumns>(total, now.a[b], product_rows(Chunks::inputs(stages.now) + b * kInt8Block));
      commit_products();
      wait_products<1>();
      chunks.advance(stages, chunk, [&](int stage) { load_weights(stage, next); });
    };
    int chunk = begin;
    for (; chunk + 1 < end; chunk += 2) {
      multiply_chunk(chunk, weights[0], weights[1]);
      multiply_chunk(chunk + 1, weights[1], weights[0]);
    }
    if (chunk < end) multiply_chunk(chunk, weights[0], weights[1]);
    wait_products<0>();
    hold_products(total);
    write_tile<kPanels, kColumns, kThreads>(
        m, part, tiles, tile, total, [] { sync_block(); },
        [&](int row, int output, Words<4>& dots) {
          finish_int8_rows(w, part.data, output, part.x + static_cast<ptrdiff_t>(row) * work.x.stride, dots);
        });
  }

  DEVICE void operator()() const {
    for_tiles<LinearOfInt8Rows, kOfParts>(
        *this, [this](const LinearMatrix& m, const LinearPart& part, const RowTile& tile) { multiply(m, part, tile); });
  }
};

}  // namespace quire::cuda
