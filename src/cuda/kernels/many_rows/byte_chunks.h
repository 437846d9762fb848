// Chunks of inputs and weights that have a byte each: what LinearOfFp8Rows and LinearOfInt8Rows share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/many_rows/chunk_copies.h"
#include "cuda/kernels/many_rows/row_tiles.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// A block has kPanels panels, one for each warp, and kColumns rows of inputs. A stage of shared memory has the inputs of a
// chunk, 128 bytes of each row, and then each panel's codes.
template <int kColumns, Codes kCodes>
struct ByteChunks {
  static constexpr int kThreads = 256, kPanels = kThreads / 32, kStages = 4;
  static constexpr int kBlocks = 4;  // of 32 inputs, in a chunk
  static constexpr int kInputBytes = kColumns * kBlocks * kBlockInputs;
  static constexpr int kCodeBytes = kCodeBlockBytes<kCodes>;  // of a block of a panel
  static constexpr int kPanelBytes = kBlocks * kCodeBytes;
  static constexpr int kStageBytes = kInputBytes + kPanels * kPanelBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static_assert(kCodeBits<kCodes> == 8 && kCodeBytes == 16 * 32);
  static_assert(kColumns * kTileFloats<kPanels> * 4 <= kSharedBytes && kStageBytes % 1024 == 0);

  // Ranges begin at multiples of a chunk.
  DEVICE static int first_chunk(int blocks, int range) { return (blocks + kBlocks - 1) / kBlocks * range / kSplits; }

  DEVICE static Shared<const uint8_t> inputs(int stage) {
    return shared<const uint8_t>(static_cast<size_t>(stage * kStageBytes));
  }
  DEVICE static Shared<const uint8_t> own_codes(int stage) {
    return shared<const uint8_t>(static_cast<size_t>(stage * kStageBytes + kInputBytes)) + warp() * kPanelBytes;
  }

  Global<const uint8_t> panel;  // the warp's
  int blocks, begin, end;       // of the matrix; the chunks of the tile's ranges
  // The copies of a thread: of rows, and 16 bytes of each block of its warp's panel.
  RowCopies<kColumns, kThreads> rows;
  Global<const uint8_t> codes;
  int codes_to;  // in the stage

  // x_stride: PreparedRows'. place: where lane()'s 16 bytes of a block's codes lie in shared memory.
  DEVICE ByteChunks(const WeightShape& w, const LinearPart& part, const RowTile& tile, int x_stride, int place)
      : panel(part.data +
              static_cast<ptrdiff_t>(tile.panel + warp() < panels_of(w) ? tile.panel + warp() : 0) * w.panel_bytes),
        blocks(w.blocks),
        begin(first_chunk(w.blocks, tile.range_begin)),
        end(first_chunk(w.blocks, tile.range_end)),
        rows(PreparedRows{part.x, x_stride}, tile.row, part.rows),
        codes(panel + (w.codes + 16 * lane())),
        codes_to(kInputBytes + warp() * kPanelBytes + place) {}

  // While earlier launches finish: the codes of the first chunks.
  DEVICE void prefetch_codes() const {
    UNROLL
    for (int k = 0; k < kStages - 1; ++k) {
      const int at = begin * kPanelBytes + (k * 32 + lane()) * 64;
      if (at < blocks * kCodeBytes) prefetch(codes + (at - 16 * lane()));
    }
  }

  // Nothing after the last chunk.
  DEVICE void start(int chunk, int stage) const {
    if (chunk >= end) return;
    const auto to = shared<uint8_t>(static_cast<size_t>(stage * kStageBytes));
    const int left = blocks - chunk * kBlocks;
    const auto from = codes + static_cast<ptrdiff_t>(chunk) * kPanelBytes;
    UNROLL
    for (int b = 0; b < kBlocks; ++b)
      copy_async<16>(to + (codes_to + b * kCodeBytes), from + (b < left ? b * kCodeBytes : 0), b < left);
    rows.start(chunk, rows.piece < 2 * left, to);
  }

  // The stage of the chunk that is multiplied, and that which is filled next.
  struct Stages {
    int now = 0, next = kStages - 1;
  };
  // Starts the copies of the first chunks. The first of them has come.
  DEVICE Stages start_first() const {
    UNROLL
    for (int k = 0; k < kStages - 1; ++k) {
      start(begin + k, k);
      commit_copies();
    }
    wait_copies<kStages - 2>();
    fence_shared();
    sync_block();
    return {};
  }
  // The chunk after `chunk` has come, if there is one: load(stage) brings its weights to registers. All warps are done with the one
  // before `chunk`, whose memory is filled again.
  template <class Load>
  DEVICE void advance(Stages& stages, int chunk, const Load& load) const {
    wait_copies<kStages - 3>();
    fence_shared();
    sync_block();
    stages.now = stages.now + 1 == kStages ? 0 : stages.now + 1;
    if (chunk + 1 < end) load(stages.now);
    start(chunk + kStages - 1, stages.next);
    commit_copies();
    stages.next = stages.next + 1 == kStages ? 0 : stages.next + 1;
  }
};

}  // namespace quire::cuda
