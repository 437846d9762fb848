// Launches of the kernels whose blocks are tiles of panels and rows, with ranges apart where that is faster.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernels/many_rows/finish_sums.h"
#include "cuda/kernels/many_rows/row_tiles.h"
#include "cuda/linear/linear_launch.h"

namespace quire::cuda {

// What a block takes besides its chunks of 64 inputs, and what FinishSums takes, in the time of a chunk: on an H200.
inline constexpr int64_t kFixedChunks = 5, kFinishChunks = 8;
// LinearWork::ahead of up to 256 bf16 rows, which on an H200 took 6 to 15 % less time with it, and less with 4 than with 8 or 12.
inline constexpr int kAhead = 4;

// Whether it is faster to give the ranges to blocks of their own. tiles: blocks otherwise.
inline bool splits_ranges(int64_t tiles, int64_t chunks, int64_t processors) {
  const auto turns = [&](int64_t blocks) { return (blocks + processors - 1) / processors; };
  return turns(kSplits * tiles) * (chunks / kSplits + kFixedChunks) + kFinishChunks <
         turns(tiles) * (chunks + kFixedChunks);
}

// Parts have no ranges apart: there are enough blocks.
template <class Kernel>
void launch_tiles_of_parts(Stream& stream, const LinearLaunch& launch) {
  const int panels = panel_tiles(launch.work, Kernel::kPanels);
  const int row_tiles = (launch.usual_rows + Kernel::kColumns - 1) / Kernel::kColumns;
  LinearWork work = launch.work;
  work.ahead = row_tiles <= 2 ? kAhead : 0;
  stream.launch(
      {.x = panels * row_tiles, .z = launch.parts, .threads = Kernel::kThreads, .shared_bytes = Kernel::kSharedBytes},
      Kernel{work, RowTiles{nullptr, panels, row_tiles}});
}

template <class Kernel, class Finish = FinishSums<false>>
void launch_tiles_of_rows(Stream& stream, const LinearLaunch& launch) {
  const LinearVariant& variant = launch.variant;
  const bool usual = variant.kernel == LinearKernel::kUsual;
  constexpr int kCluster = Kernel::kCluster;
  const int panels = (panel_tiles(launch.work, Kernel::kPanels) + kCluster - 1) / kCluster * kCluster;
  const int row_tiles = (launch.usual_rows + Kernel::kColumns - 1) / Kernel::kColumns;
  const int outputs = panels * Kernel::kPanels * kPanel;
  const size_t partial_bytes =
      sizeof(float) * kSplits * static_cast<size_t>(launch.usual_rows) * static_cast<size_t>(outputs);
  const int chunks = launch.work.matrices[0].w.blocks / Kernel::kChunkBlocks;
  const bool wanted = usual ? splits_ranges(panels * row_tiles, chunks, stream.facts().processors) : variant.apart;
  const bool split = wanted && partial_bytes <= stream.scratch_bytes();
  LinearWork work = launch.work;
  work.ahead = !usual ? variant.ahead : row_tiles <= 2 ? kAhead : 0;
  const auto partials = split ? reinterpret_cast<float*>(stream.scratch()) : nullptr;
  const LaunchShape shape{.x = panels * row_tiles,
                          .z = split ? kSplits : 1,
                          .threads = Kernel::kThreads,
                          .shared_bytes = Kernel::kSharedBytes,
                          .cluster = kCluster};
  const RowTiles tiles{partials, panels, row_tiles};
  if constexpr (kCluster > 1) {
    const BoxMap inputs =
        stream.device().map_boxes(address_of(work.x.data), work.rows, work.matrices[0].w.blocks * kBlockInputs,
                                  static_cast<size_t>(work.x.stride), Kernel::kBoxRows);
    stream.launch(shape, Kernel{inputs, work, tiles});
  } else {
    stream.launch(shape, Kernel{work, tiles});
  }
  if (!split) return;
  stream.launch({.x = (outputs / 4 + Finish::kThreads - 1) / Finish::kThreads,
                 .y = launch.usual_rows,
                 .threads = Finish::kThreads},
                Finish{launch.work, partials, outputs, Kernel::kPanels});
}

}  // namespace quire::cuda
