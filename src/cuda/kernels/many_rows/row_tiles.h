// What linears of many rows share: which outputs and rows a block of threads has, and how it writes their sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/unroll.h"
#include "kernels/packed.h"

namespace quire::cuda {

// A launch has panel_tiles x row_tiles blocks. For parts, such as experts, it has so many for each (find_part()), and a block goes
// on with every row_tiles-th tile of rows. With partials, blocks z = 0 .. kSplits - 1 have one range each and leave its sums
// there, [kSplits][rows][outputs of all matrices], as bits of float or int32_t, for FinishSums. Otherwise a block has all ranges.
struct RowTiles {
  Global<float> partials;  // or nullptr
  int32_t panel_tiles, row_tiles;
};

// Where a block works: its first panel, counted in its matrix and over all matrices, its first row, and its ranges.
struct RowTile {
  int panel, panel_of_all, row, range_begin, range_end;
};

// Neighbouring blocks share panels and rows: kRowTilesTogether row tiles for each panel tile. panel: of all matrices. Blocks of a
// cluster have the same rows, and neighbouring panels; panel_tiles is then a multiple of kCluster.
template <int kPanels, int kColumns, int kCluster = 1>
DEVICE RowTile tile_of_block(const RowTiles& all) {
  constexpr int kRowTilesTogether = 16;
  const int cluster = block_x() / kCluster, together = kRowTilesTogether * (all.panel_tiles / kCluster);
  const int first = cluster / together * kRowTilesTogether, within = cluster % together;
  const int tiles = all.row_tiles - first < kRowTilesTogether ? all.row_tiles - first : kRowTilesTogether;
  RowTile tile;
  tile.panel = tile.panel_of_all = (within / tiles * kCluster + block_x() % kCluster) * kPanels;
  tile.row = (first + within % tiles) * kColumns;
  tile.range_begin = all.partials != nullptr ? block_z() : 0;
  tile.range_end = all.partials != nullptr ? tile.range_begin + 1 : kSplits;
  return tile;
}

// Calls multiply(matrix, part, tile) for each tile of the block, of a kernel that has `work` and `tiles`. kOfParts: the launch has
// parts. Which rows they have, an earlier launch has found, and it is waited for.
template <class Kernel, bool kOfParts, class Multiply>
DEVICE void for_tiles(const Kernel& kernel, const Multiply& multiply) {
  RowTile tile = tile_of_block<Kernel::kPanels, Kernel::kColumns>(kernel.tiles);
  const LinearMatrix& m = find_matrix(kernel.work, tile.panel, Kernel::kPanels);
  if constexpr (kOfParts) {
    wait_previous();
    const LinearPart part = find_part(kernel.work, m);
    ROLLED
    for (; tile.row < part.rows; tile.row += kernel.tiles.row_tiles * Kernel::kColumns) {
      multiply(m, part, tile);
      sync_block();  // the results have been read
    }
  } else {
    multiply(m, only_part(kernel.work, m), tile);
  }
}

// Numbers of a row of results in shared memory.
template <int kPanels>
inline constexpr int kTileFloats = kPanels* kPanel + 8;

DEVICE uint32_t bits_of(float v) { return float_bits(v); }
DEVICE uint32_t bits_of(int32_t v) { return static_cast<uint32_t>(v); }

// What write_tile() makes of sums before it finishes outputs: of float32 nothing.
struct SumsAsTheyAre {
  DEVICE void operator()(int, int, Words<4>&) const {}
};

// total: as multiply_bf16_wide() leaves it, of a warp for each panel; float or int32_t. The results go through shared memory, which
// must be free once all of these kThreads threads have met; so a thread has four neighbouring outputs, of every so many rows. meet():
// a barrier of these threads, and of no others. convert(row, output, sums): makes float32 of whole sums of the matrix.
template <int kPanels, int kColumns, int kThreads, class Number, class Meet, class Convert = SumsAsTheyAre>
DEVICE void write_tile(const LinearMatrix& m, const LinearPart& part, const RowTiles& all, const RowTile& at,
                       const Number (&total)[kColumns / 2], const Meet& meet, const Convert& convert = {}) {
  constexpr int kPitch = kTileFloats<kPanels>;
  const int g = lane() / 4, i = lane() % 4;
  meet();
  const auto results = shared<float>(0);
  UNROLL
  for (int n = 0; n < kColumns / 2; n += 4) {
    UNROLL
    for (int e = 0; e < 2; ++e)
      store(results + ((n / 4 * 8 + 2 * i + e) * kPitch + warp() * kPanel + 2 * g),
            Words<2>{{bits_of(total[n + e]), bits_of(total[n + 2 + e])}});
  }
  meet();
  const int rows = part.rows - at.row < kColumns ? part.rows - at.row : kColumns;
  constexpr int kFours = kPanels * kPanel / 4, kRowsTogether = kThreads / kFours;
  const int column = 4 * (thread() % kFours);
  UNROLL_BY_4
  for (int row = thread() / kFours; row < rows; row += kRowsTogether) {
    Words<4> values = load<4>(results + (row * kPitch + column));
    if (all.partials != nullptr) {
      store(all.partials +
                ((static_cast<ptrdiff_t>(block_z()) * part.rows + at.row + row) * (all.panel_tiles * kPanels * kPanel) +
                 at.panel_of_all * kPanel + column),
            values);
    } else {
      convert(at.row + row, at.panel * kPanel + column, values);
      finish_outputs(m, part, at.row + row, at.panel * kPanel + column, values);
    }
  }
}

}  // namespace quire::cuda
