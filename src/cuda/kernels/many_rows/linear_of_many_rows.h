// Linears of many rows on GPUs with warpgroups (sm_90a): prompts, and large batches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/many_rows/chunk_copies.h"
#include "cuda/kernels/many_rows/row_tiles.h"
#include "cuda/kernels/products.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// A block has kPanels panels, one for each warp, and kColumns rows of inputs, which are the columns of its products. Weights
// and inputs come through shared memory, kStages chunks of 64 inputs deep; inputs lie in the 128-byte swizzle, and a warp's
// weights, which only it reads, so that its loads meet no bank twice. Products of one chunk run while the next is prepared.
//
// Formats without scales have the sums of a range of blocks in one set of registers and the total in another. With scales there
// is a third, for half of the columns at a time: while one half is multiplied, the other is scaled.
//
// The bits are those of LinearOfRows: the steps, their order and the ranges are the same, and a product of a warpgroup has the
// bits of multiply_bf16().
//
// kHalves: groups are 16 inputs, so that each half of a block is multiplied for itself, with zeros in place of the other.
// kOfParts: for_tiles().
template <Codes kCodes, bool kHalves, ScaleForm kForm, bool kOfParts = false>
struct LinearOfManyRows {
  static constexpr const char* kName = "linear_of_many_rows";
  static constexpr bool kScaled = kHasScales<kCodes>;
  static constexpr bool kWaits = true;
  static constexpr int kGroups = kScaled ? 2 : 3;
  static constexpr int kThreads = kGroups * 128;
  static constexpr int kPanels = kGroups * 4;
  static constexpr int kColumns = 128;
  static constexpr int kCluster = 1;  // blocks run alone
  static constexpr int kChunkBlocks = 2;
  static constexpr int kWeightTermsHere = kWeightTerms<kCodes, 1>;
  static constexpr int kInputBytes = kColumns * kChunkBlocks * kPreparedBlock;
  static constexpr int kPanelBytes = kChunkBlocks * kCodeBlockBytes<kCodes>;
  static constexpr int kStageBytes = kInputBytes + (kPanels * kPanelBytes + 1023) / 1024 * 1024;
  static constexpr int kStages = kStageBytes <= 45 << 10 ? 4 : 3;
  static constexpr int kParts = kHalves ? 2 : 1;  // of a block
  // The sums of inputs, for minima: of three chunks, [3][kChunkBlocks][kParts][kColumns]. A warp may still scale by those of one
  // chunk when another has the next but one.
  static constexpr int kSumsAt = kStages * kStageBytes, kChunkSums = kChunkBlocks * kParts * kColumns;
  static constexpr int kSharedBytes = kSumsAt + (kScaled ? 3 * kChunkSums * 4 : 0);
  static_assert(kColumns * kTileFloats<kPanels> * 4 <= kSumsAt);
  static constexpr int kPieces = kPanelBytes / 16, kPiecesPerLane = (kPieces + 31) / 32;

  LinearWork work;
  RowTiles tiles;

  // The copies of a thread.
  struct Copies {
    RowCopies<kColumns, kThreads> inputs;
    Global<const uint8_t> codes;
    int codes_to[2];  // of pieces lane() + 32 k, for even and odd k: in the stage
    int blocks;       // of the matrix
  };
  DEVICE void copy_chunk(const Copies& c, int chunk, int end, int stage) const {
    if (chunk >= end) return;
    const auto to = shared<uint8_t>(static_cast<size_t>(stage * kStageBytes));
    const int blocks = c.blocks - chunk * kChunkBlocks;  // from this chunk on
    const auto codes = c.codes + static_cast<ptrdiff_t>(chunk) * kPanelBytes;
    UNROLL
    for (int k = 0; k < kPiecesPerLane; ++k) {
      if (kPieces % 32 != 0 && lane() + 32 * k >= kPieces) continue;
      const bool valid = blocks > 1 || lane() + 32 * k < kPieces / 2;
      copy_async<16>(to + (c.codes_to[k % 2] + k / 2 * 1024), codes + (valid ? 16 * 32 * k : 0), valid);
    }
    c.inputs.start(chunk, blocks > 1 || c.inputs.piece < 4, to);
  }

  DEVICE static void load_weights(const WeightShape& w, int stage, const TableWords (&tables)[kWeightTermsHere],
                                  WeightWords (&to)[kChunkBlocks][kWeightTermsHere]) {
    const auto panel =
        shared<const uint8_t>(static_cast<size_t>(stage * kStageBytes + kInputBytes)) + warp() * kPanelBytes;
    UNROLL
    for (int b = 0; b < kChunkBlocks; ++b) {
      CodeWords<kCodes> codes;
      load_swizzled<kCodes>(panel, b, codes);
      decode_terms<kCodes>(codes, {kCodeExponents, w.zero}, tables, to[b]);  // registers are scarcer here
    }
  }

  DEVICE void multiply(const LinearMatrix& m, const LinearPart& part, const RowTile& tile) const {
    const WeightShape& w = m.w;
    const int g = lane() / 4, i = lane() % 4;
    const int own = tile.panel + warp(), panels = panels_of(w);
    const auto own_panel = part.data + static_cast<ptrdiff_t>(own < panels ? own : 0) * w.panel_bytes;

    const int codes_at = kInputBytes + warp() * kPanelBytes;
    const Copies copies{
        {{part.x, work.x.stride}, tile.row, part.rows},
        own_panel + (w.codes + 16 * lane()),
        {codes_at + swizzled_codes<kCodes>(16 * lane()), codes_at + swizzled_codes<kCodes>(16 * (lane() + 32))},
        w.blocks};
    for (int k = 0; k < kStages; ++k) {
      const int at = (k * 32 + lane()) * 128;  // while earlier launches finish
      if (at < w.blocks * kCodeBlockBytes<kCodes>) prefetch(own_panel + (w.codes + at));
    }
    if constexpr (!kOfParts) wait_previous();

    TableWords tables[kWeightTermsHere] = {};
    load_tables<kCodes>(w.tables, tables);
    const bool minima = kScaled && minima_of(w);

    // The ranges of this block, and its chunks.
    const int begin = range_begin(w.blocks, tile.range_begin) / kChunkBlocks;
    const int end = (range_begin(w.blocks, tile.range_end) + kChunkBlocks - 1) / kChunkBlocks;

    int stage = 0, next_stage = kStages - 1;
    // Sums of inputs: thread t has those of block t / kColumns of a chunk, row t % kColumns.
    Words<2> next_sums{};
    const auto load_sums = [&](int chunk) {
      const int block = chunk * kChunkBlocks + thread() / kColumns, row = tile.row + thread() % kColumns;
      next_sums = {};
      if (minima && chunk < end && block < w.blocks && row < part.rows)
        next_sums =
            load<2>(part.x + (static_cast<ptrdiff_t>(row) * work.x.stride + w.blocks * kPreparedBlock + 8 * block));
    };
    const auto keep_sums = [&](int chunk) {
      if (!minima) return;
      const auto to = shared<float>(kSumsAt) +
                      (chunk % 3 * kChunkSums + thread() / kColumns * kParts * kColumns + thread() % kColumns);
      const float first = bits_float(next_sums.w[0]), second = bits_float(next_sums.w[1]);
      to[0] = kHalves ? first : first + second;
      if constexpr (kHalves) to[kColumns] = second;
    };

    UNROLL
    for (int k = 0; k < kStages - 1; ++k) {
      copy_chunk(copies, begin + k, end, k);
      commit_copies();
    }
    if constexpr (kScaled) {
      load_sums(begin);
      keep_sums(begin);
      load_sums(begin + 1);
    }
    wait_copies<kStages - 2>();
    fence_shared();
    sync_block();
    WeightWords weights[2][kChunkBlocks][kWeightTermsHere];
    load_weights(w, 0, tables, weights[0]);

    // While products of `chunk` run: the next chunk has come, and all warps have finished the products of the chunk before,
    // whose memory is filled again. Copies are started last, because fence_shared() waits for those that have been.
    const auto advance = [&](int chunk, WeightWords(&to)[kChunkBlocks][kWeightTermsHere]) {
      if constexpr (kScaled) keep_sums(chunk + 1);
      wait_copies<kStages - 3>();
      fence_shared();
      sync_block();
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if (chunk + 1 < end) load_weights(w, stage, tables, to);
      copy_chunk(copies, chunk + kStages - 1, end, next_stage);
      commit_copies();
      next_stage = next_stage + 1 == kStages ? 0 : next_stage + 1;
      if constexpr (kScaled) load_sums(chunk + 2);
    };

    float total[kColumns / 2], acc[kColumns / 2];
    UNROLL
    for (float& v : total) v = 0;
    UNROLL
    for (float& v : acc) v = 0;
    float products[2][kColumns / 4];  // with scales

    // Scales of the parts of a chunk, as they are in memory.
    ScaleWords words[kChunkBlocks * kParts] = {};
    const auto load_words = [&](int chunk) {
      UNROLL
      for (int q = 0; q < kChunkBlocks * kParts; ++q) {
        const int block = chunk * kChunkBlocks + q / kParts;
        if (chunk >= end || block >= w.blocks) continue;
        load_scales_as<kForm>(w, own_panel, block, q % kParts, minima, g, words[q]);
      }
    };
    if constexpr (kScaled) load_words(begin);

    const auto multiply_chunk = [&](int chunk, bool adds, WeightWords(&now)[kChunkBlocks][kWeightTermsHere],
                                    WeightWords(&next)[kChunkBlocks][kWeightTermsHere]) {
      const auto rows = shared<const uint8_t>(static_cast<size_t>(stage * kStageBytes));
      if constexpr (!kScaled) {
        fence_products();
        UNROLL
        for (int b = 0; b < kChunkBlocks; ++b) {
          UNROLL
          for (int s = 0; s < 2; ++s) {
            UNROLL
            for (int t = 0; t < kWeightTermsHere; ++t)
              multiply_bf16_wide<kColumns>(acc, now[b][t].a[s], product_rows(rows + (b * 64 + s * 32)),
                                           adds || b + s + t > 0);
          }
        }
        commit_products();
        wait_products<1>();
        advance(chunk, next);
      } else {
        Scales scales[kChunkBlocks * kParts];
        UNROLL
        for (int q = 0; q < kChunkBlocks * kParts; ++q) scales[q] = convert_scales_as<kForm>(w, words[q], minima);
        load_words(chunk + 1);
        const auto issue = [&](int b, int p, int half) {
          const uint32_t mask = !kHalves || i / 2 == p ? 0xFFFFFFFFu : 0u;
          fence_products();
          UNROLL
          for (int s = 0; s < 2; ++s) {
            const uint32_t* from = now[b][0].a[s];
            const uint32_t a[4] = {from[0] & mask, from[1] & mask, from[2] & mask, from[3] & mask};
            multiply_bf16_wide<kColumns / 2>(
                products[half], a, product_rows(rows + (half * (kColumns / 2) * 128 + b * 64 + s * 32)), s > 0);
          }
          commit_products();
        };
        const auto scale_half = [&](const Scales& scales, int b, int p, int half) {
          UNROLL
          for (int n = 0; n < kColumns / 4; ++n) {
            float& to = acc[half * (kColumns / 4) + n];
            to = fma_of(products[half][n], scales.scale[n / 2 % 2], to);
          }
          if (!minima) return;
          const auto sums = shared<const float>(kSumsAt) +
                            (chunk % 3 * kChunkSums + (b * kParts + p) * kColumns + half * (kColumns / 2) + 2 * i);
          UNROLL
          for (int n = 0; n < kColumns / 4; n += 4) {
            const Words<2> pair = load<2>(sums + 2 * n);
            UNROLL
            for (int k = 0; k < 4; ++k) {
              float& to = acc[half * (kColumns / 4) + n + k];
              to = fma_of(scales.minimum[k / 2], bits_float(pair.w[k % 2]), to);
            }
          }
        };
        UNROLL
        for (int q = 0; q < kChunkBlocks * kParts; ++q) {
          issue(q / kParts, q % kParts, 0);
          if (q > 0) {
            wait_products<1>();
            scale_half(scales[q - 1], (q - 1) / kParts, (q - 1) % kParts, 1);
          }
          issue(q / kParts, q % kParts, 1);
          wait_products<1>();
          scale_half(scales[q], q / kParts, q % kParts, 0);
        }
        advance(chunk, next);
        wait_products<0>();
        scale_half(scales[kChunkBlocks * kParts - 1], kChunkBlocks - 1, kParts - 1, 1);
      }
    };

    int chunk = begin;
    for (int range = tile.range_begin; range < tile.range_end; ++range) {
      const int stop = (range_begin(w.blocks, range + 1) + kChunkBlocks - 1) / kChunkBlocks;
      if (chunk >= stop) continue;
      bool adds = false;
      for (; chunk + 1 < stop; chunk += 2) {
        multiply_chunk(chunk, adds, weights[0], weights[1]);
        multiply_chunk(chunk + 1, true, weights[1], weights[0]);
        adds = true;
      }
      if (chunk < stop) {
        multiply_chunk(chunk, adds, weights[0], weights[1]);
        UNROLL
        for (int b = 0; b < kChunkBlocks; ++b) {
          UNROLL
          for (int t = 0; t < kWeightTermsHere; ++t) weights[0][b][t] = weights[1][b][t];
        }
        ++chunk;
      }
      wait_products<0>();
      UNROLL
      for (int n = 0; n < kColumns / 2; ++n) {
        total[n] += acc[n];
        if constexpr (kScaled) acc[n] = 0;
      }
    }

    write_tile<kPanels, kColumns, kThreads>(m, part, tiles, tile, total, [] { sync_block(); });
  }

  DEVICE void operator()() const {
    for_tiles<LinearOfManyRows, kOfParts>(
        *this, [this](const LinearMatrix& m, const LinearPart& part, const RowTile& tile) { multiply(m, part, tile); });
  }
};

}  // namespace quire::cuda
