// Linears of many rows with bf16 weights on GPUs with warpgroups (sm_90a).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/many_rows/bf16_tiles.h"
#include "cuda/kernels/products.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"

namespace quire::cuda {

// Bf16Tiles whose inputs come by asynchronous copies of a warpgroup's threads. kOfParts: for_tiles().
template <int kOfColumns, bool kOfParts = false>
struct LinearOfBf16Rows {
  using All = Bf16Tiles<kOfColumns, kOfParts>;
  using Tile = typename All::Tile;
  static constexpr const char* kName = "linear_of_bf16_rows";
  static constexpr bool kWaits = true;
  static constexpr int kThreads = All::kThreads, kPanels = All::kPanels, kColumns = All::kColumns;
  static constexpr int kCluster = 1;  // blocks run alone
  static constexpr int kChunkBlocks = All::kChunkBlocks, kSharedBytes = All::kSharedBytes;
  static constexpr int kRowsPerPass = All::kBringing / 8, kPasses = kColumns / kRowsPerPass;

  LinearWork work;
  RowTiles tiles;

  // A meeting of a warpgroup that computes with the one that brings inputs: those of a chunk have come, and the products of the
  // chunk before the last are done.
  DEVICE static void meet(int group) {
    if (group == 0) {
      sync_part(1, 128 + All::kBringing);
    } else {
      sync_part(2, 128 + All::kBringing);
    }
  }

  DEVICE void bring(const WeightShape& w, const LinearPart& part, const Tile& tile) const {
    const int t = thread() - All::kComputing, piece = t % 8, row = t / 8, rows = part.rows - tile.row;
    const auto from = part.x + (static_cast<ptrdiff_t>(tile.row + row) * work.x.stride + piece * 16);
    const int to = row * 128 + (piece ^ row % 8) * 16;
    const auto copy_chunk = [&](int chunk) {
      if (chunk < tile.end) {
        const auto stage = All::stage_of(tile, chunk);
        const bool exists = 2 * chunk + 1 < w.blocks || piece < 4;
        UNROLL
        for (int k = 0; k < kPasses; ++k) {
          const bool valid = exists && row + k * kRowsPerPass < rows;
          const auto x = from + (static_cast<ptrdiff_t>(k * kRowsPerPass) * work.x.stride +
                                 chunk * (kChunkBlocks * kPreparedBlock));
          copy_async<16>(stage + (to + k * kRowsPerPass * 128), valid ? x : part.x, valid);
        }
      }
      commit_copies();
    };
    if constexpr (!kOfParts) wait_previous();
    ROLLED
    for (int k = 0; k < All::kStages - 2; ++k) copy_chunk(tile.begin + k);
    ROLLED
    for (int chunk = tile.begin; chunk < tile.end; ++chunk) {
      wait_copies<All::kStages - 3>();
      fence_shared();
      meet(0);
      meet(1);
      copy_chunk(chunk + All::kStages - 2);
    }
  }

  DEVICE void operator()() const {
    const auto for_own_tiles = [&](const auto& work_on) {
      for_tiles<LinearOfBf16Rows, kOfParts>(*this,
                                            [&](const LinearMatrix& m, const LinearPart& part, const RowTile& at) {
                                              work_on(m, part, All::with_chunks(at, m.w));
                                            });
    };
    if (thread() < All::kComputing) {
      raise_registers<232>();
      for_own_tiles([&](const LinearMatrix& m, const LinearPart& part, const Tile& tile) {
        All::compute(
            part, work.ahead, tiles, m, tile, [](int) { meet(warp() / 4); }, [](int) {});
      });
    } else {
      lower_registers<40>();
      for_own_tiles([&](const LinearMatrix& m, const LinearPart& part, const Tile& tile) { bring(m.w, part, tile); });
    }
  }
};

}  // namespace quire::cuda
