// Linears of many rows with bf16 weights by clusters of thread blocks (sm_90a).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/many_rows/bf16_tiles.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"

namespace quire::cuda {

// Bf16Tiles of kCluster blocks that multiply the same rows. Each fetches a part of a chunk's inputs for all of them (TMA with
// multicast), so the L2 cache is asked for inputs once, and not by every block.
template <int kOfColumns, int kOfCluster>
struct LinearInClusters {
  using All = Bf16Tiles<kOfColumns>;
  using Tile = typename All::Tile;
  static constexpr const char* kName = "linear_in_clusters";
  static constexpr bool kWaits = true;
  static constexpr int kThreads = All::kThreads, kPanels = All::kPanels, kColumns = All::kColumns;
  static constexpr int kChunkBlocks = All::kChunkBlocks, kCluster = kOfCluster, kBoxRows = kColumns / kCluster;
  // For each stage, two barriers of arrivals: its inputs have come; all warps of the cluster have read them.
  static constexpr int kArrivalsAt = All::kSharedBytes, kSharedBytes = kArrivalsAt + 2 * All::kStages * 8;
  static constexpr int kComputingWarps = All::kComputing / 32;

  BoxMap inputs;  // of work.x, boxes of kBoxRows rows
  LinearWork work;
  RowTiles tiles;

  DEVICE static Shared<uint64_t> came(int stage) { return shared<uint64_t>(kArrivalsAt) + stage; }
  DEVICE static Shared<uint64_t> read(int stage) { return shared<uint64_t>(kArrivalsAt) + (All::kStages + stage); }

  // By one thread: this block's part of all chunks.
  DEVICE void bring(const Tile& tile) const {
    constexpr int kBoxBytes = All::kStageBytes / kCluster;
    static_assert(kChunkBlocks * kBlockInputs == kBoxColumns);
    const int own = block_of_cluster();
    ROLLED
    for (int chunk = tile.begin; chunk < tile.end; ++chunk) {
      const int n = chunk - tile.begin, stage = n % All::kStages, round = n / All::kStages;
      if (round > 0) wait_arrivals(read(stage), (round - 1) % 2);
      arrive_expecting(came(stage), All::kStageBytes);
      copy_box(inputs, chunk * kBoxColumns, tile.row + own * kBoxRows, All::stage_of(tile, chunk) + own * kBoxBytes,
               came(stage), (1u << kCluster) - 1);
    }
  }

  DEVICE void operator()() const {
    RowTile at = tile_of_block<kPanels, kColumns, kCluster>(tiles);
    const LinearMatrix& m = find_matrix(work, at.panel, kPanels);
    const Tile tile = All::with_chunks(at, m.w);
    if (thread() < All::kStages) {
      init_arrivals(came(thread()), 1);
      init_arrivals(read(thread()), kCluster * kComputingWarps);
    }
    sync_cluster();
    if (thread() < All::kComputing) {
      raise_registers<232>();
      All::compute(
          only_part(work, m), work.ahead, tiles, m, tile,
          [&](int chunk) {
            const int n = chunk - tile.begin;
            wait_arrivals(came(n % All::kStages), n / All::kStages % 2);
          },
          [&](int chunk) {
            if (lane() < kCluster) arrive(read((chunk - tile.begin) % All::kStages), lane());
          });
    } else {
      lower_registers<40>();
      wait_previous();
      if (thread() == All::kComputing) bring(tile);
      sync_warp();
    }
    sync_cluster();  // until nobody sends to this block any more
  }
};

}  // namespace quire::cuda
