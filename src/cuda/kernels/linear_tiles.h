// Linears of many rows: prompts, whose speed is that of the multipliers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/products.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// A block computes kPanels panels by kRows rows; block_x(), block_y() and block_z() are as with LinearOfRows. kDown warps share
// the panels, kAcross the rows. A warp has two panels, which are those of W and of `up` if there is one, by 8 kTiles rows.
//
// Codes and inputs of two blocks of 32 inputs, a stage, are copied to shared memory while earlier stages are multiplied. Codes
// are decoded in registers, by each of the kAcross warps that need them. The ranges of the definition (weights.h) are taken
// one after the other; their sum so far is kept in shared memory, where each thread has its own numbers.
template <class Format, int kTerms, int kDown, int kAcross, int kTiles>
struct LinearOfTiles {
  static constexpr const char* kName = "linear_of_tiles";
  static constexpr int kThreads = 32 * kDown * kAcross;
  static constexpr Codes kCodes = Format::kCodes;
  static constexpr int kGroups = Format::kGroups;
  static constexpr int kPanels = 2 * kDown, kRows = 8 * kTiles * kAcross;
  static constexpr int kStageBlocks = 2, kRowBytes = kStageBlocks * kPreparedBlock, kSumBytes = kStageBlocks * 8;
  static constexpr int kInputBytes = kTerms * kRows * kRowBytes, kCodeBytes = kStageBlocks * kCodeBlockBytes<kCodes>;
  static constexpr int kStageBytes = kInputBytes + kRows * kSumBytes + kPanels * kCodeBytes;
  static constexpr int kTotalBytes = kThreads * 2 * kTiles * 4 * static_cast<int>(sizeof(float));
  static constexpr int kSharedBytes = 224 << 10;  // what is spent at most
  static constexpr int kMostStages = (kSharedBytes - kTotalBytes) / kStageBytes;
  static constexpr int kStages = kMostStages < 4 ? kMostStages : 4;
  static_assert(kStages >= 2);
  static constexpr int shared_bytes() { return kStages * kStageBytes + kTotalBytes; }
  static constexpr int kOwnTerms = kWeightTerms<kCodes, kTerms>;

  LinearWork work;

  // Starts to copy a stage. In shared memory the sixteen bytes c of input row r are at c ^ (r % 8), so that the eight rows that
  // load_matrices() reads together lie in different banks.
  DEVICE void copy_stage(const WeightShape& w, const TilePanels& panels, Global<const uint8_t> x, int rows,
                         int stage) const {
    const size_t base = static_cast<size_t>(stage % kStages) * kStageBytes;
    const int block = stage * kStageBlocks, term_bytes = w.blocks * kPreparedBlock;
    if (block < w.blocks) {
      // A thread copies the same sixteen bytes of every kEvery-th row.
      constexpr int kChunks = kRowBytes / 16, kEvery = kThreads / kChunks;
      static_assert(kEvery % 8 == 0);
      const int c = thread() % kChunks, first = thread() / kChunks;
      const bool inside = block + c / (kChunks / kStageBlocks) < w.blocks;
      ROLLED
      for (int t = 0; t < kTerms; ++t) {
        auto from =
            x + (static_cast<ptrdiff_t>(first) * work.x.stride + t * term_bytes + block * kPreparedBlock + 16 * c);
        auto to = shared<uint8_t>(base) + ((t * kRows + first) * kRowBytes + 16 * (c ^ first % 8));
        ROLLED
        for (int r = first; r < kRows; r += kEvery) {
          const bool valid = inside && r < rows;
          copy_async<16>(to, valid ? from : x, valid);
          from += kEvery * work.x.stride;
          to += kEvery * kRowBytes;
        }
      }
      if constexpr (Format::kMinima) {
        const auto sums = shared<uint8_t>(base + kInputBytes);
        ROLLED
        for (int k = thread(); k < kRows * kStageBlocks; k += kThreads) {
          const int b = k % kStageBlocks, r = k / kStageBlocks;
          const bool valid = r < rows && block + b < w.blocks;
          const auto from = x + (static_cast<ptrdiff_t>(valid ? r : 0) * work.x.stride + kTerms * term_bytes +
                                 (valid ? 8 * (block + b) : 0));
          copy_async<8>(sums + 8 * k, from, valid);
        }
      }
      constexpr int kCodeChunks = kCodeBytes / 16;
      const auto codes = shared<uint8_t>(base + kInputBytes + kRows * kSumBytes);
      ROLLED
      for (int k = thread(); k < kPanels * kCodeChunks; k += kThreads) {
        const int p = k / kCodeChunks, c = k % kCodeChunks;
        const bool valid = panels.exists(p) && block + c / (kCodeChunks / kStageBlocks) < w.blocks;
        const auto from =
            valid ? panels.at(w, p) + (w.codes + static_cast<ptrdiff_t>(block) * kCodeBlockBytes<kCodes> + 16 * c)
                  : panels.data;
        copy_async<16>(codes + 16 * k, from, valid);
      }
    }
    commit_copies();
  }

  // Lane i has those of panel i / 2 of the warp and block i % 2 of the stage, or of its halves.
  DEVICE void load_stage_scales(const WeightShape& w, const TilePanels& panels, int stage,
                                ScaleWords (&to)[kGroups]) const {
    if constexpr (Format::kScales) {
      const int i = lane() % 4, p = warp() % kDown * 2 + i / 2, block = stage * kStageBlocks + i % 2;
      if (block >= w.blocks || !panels.exists(p)) return;
      UNROLL
      for (int half = 0; half < kGroups; ++half) load_scales(w, panels.at(w, p), block, half, lane() / 4, to[half]);
    }
  }

  // Block k of a stage.
  DEVICE void multiply_stage_block(const WeightShape& w, const TableWords (&tables)[kOwnTerms],
                                   const Scales (&own)[kGroups], int stage, int k, float (&acc)[2][kTiles][4]) const {
    const size_t base = static_cast<size_t>(stage % kStages) * kStageBytes;
    const auto codes = shared<const uint8_t>(base + kInputBytes + kRows * kSumBytes);
    const int down = warp() % kDown, across = warp() / kDown;
    WeightWords weights[2][kOwnTerms];
    Scales scales[2][kGroups] = {};
    UNROLL
    for (int p = 0; p < 2; ++p) {
      CodeWords<kCodes> raw;
      load_codes<kCodes, false>(codes + ((2 * down + p) * kCodeBytes + k * kCodeBlockBytes<kCodes>), raw);
      decode_terms<kCodes>(raw, {w.exponents, w.zero}, tables, weights[p]);
      if constexpr (Format::kScales) {
        UNROLL
        for (int half = 0; half < kGroups; ++half)
          scales[p][half] = shuffle_scales<Format::kMinima>(own[half], 2 * p + k);
      }
    }
    const auto inputs = shared<const uint8_t>(base);
    const auto sums = shared<const uint8_t>(base + kInputBytes);
    UNROLL
    for (int t = 0; t < kTiles; ++t) {
      const int row = (across * kTiles + t) * 8;
      InputWords<kTerms> in;
      UNROLL
      for (int u = 0; u < kTerms; ++u) {
        load_matrices(in.b[u],
                      inputs + ((u * kRows + row + lane() % 8) * kRowBytes + 16 * ((4 * k + lane() / 8) ^ lane() % 8)));
      }
      float of_halves[2][2] = {};
      if constexpr (Format::kMinima) {
        UNROLL
        for (int r = 0; r < 2; ++r) {
          const Words<2> halves = load<2>(sums + ((row + 2 * (lane() % 4) + r) * kSumBytes + 8 * k));
          of_halves[r][0] = bits_float(halves.w[0]), of_halves[r][1] = bits_float(halves.w[1]);
        }
      }
      UNROLL
      for (int p = 0; p < 2; ++p) multiply_block<Format, kTerms>(acc[p][t], weights[p], in, scales[p], of_halves);
    }
  }

  // The sum of the ranges so far. After it, acc is zero.
  DEVICE void add_range(float (&acc)[2][kTiles][4], bool first) const {
    const auto totals = shared<float>(static_cast<size_t>(kStages) * kStageBytes);
    UNROLL
    for (int k = 0; k < 8 * kTiles; ++k) {
      float& from = acc[k / 4 / kTiles][k / 4 % kTiles][k % 4];
      const int at = k * kThreads + thread();
      totals[at] = first ? from : totals[at] + from;
      from = 0;
    }
  }

  DEVICE void multiply_rows(const LinearMatrix& m, const LinearPart& part, const TilePanels& panels, int row) const {
    const WeightShape& w = m.w;
    const auto x = part.x + static_cast<ptrdiff_t>(row) * work.x.stride;
    const int rows = part.rows - row, stages = (w.blocks + kStageBlocks - 1) / kStageBlocks;
    TableWords tables[kOwnTerms] = {};
    load_tables<kCodes>(w.tables, tables);
    sync_block();  // earlier rows are done with the memory
    for (int s = 0; s < kStages - 1; ++s) copy_stage(w, panels, x, rows, s);
    ScaleWords next[kGroups] = {};
    load_stage_scales(w, panels, 0, next);

    float acc[2][kTiles][4] = {};
    int range = 0, end = range_begin(w.blocks, 1);
    for (int stage = 0; stage < stages; ++stage) {
      wait_copies<kStages - 2>();
      sync_block();  // all threads' copies are done, and all threads with the stage that is copied to next
      copy_stage(w, panels, x, rows, stage + kStages - 1);
      Scales own[kGroups] = {};
      if constexpr (Format::kScales) {
        UNROLL
        for (int half = 0; half < kGroups; ++half) own[half] = convert_scales(w, next[half]);
        load_stage_scales(w, panels, stage + 1, next);
      }
      ROLLED
      for (int k = 0; k < kStageBlocks; ++k) {
        const int block = stage * kStageBlocks + k;
        if (block >= w.blocks) break;
        for (; block == end; end = range_begin(w.blocks, range + 1)) add_range(acc, range++ == 0);
        multiply_stage_block(w, tables, own, stage, k, acc);
      }
    }
    wait_copies<0>();
    while (range < kSplits) add_range(acc, range++ == 0);
    write(m, part, panels, row);
  }

  DEVICE void write(const LinearMatrix& m, const LinearPart& part, const TilePanels& panels, int row) const {
    const auto totals = shared<float>(static_cast<size_t>(kStages) * kStageBytes);
    const int g = lane() / 4, i = lane() % 4, p = warp() % kDown * 2;
    for (int t = 0; t < kTiles; ++t) {
      for (int e = 0; e < 2; ++e) {
        const int r = row + (warp() / kDown * kTiles + t) * 8 + 2 * i + e;
        if (r >= part.rows) continue;
        const auto two = [&](int first, float(&to)[4]) {  // outputs 2g and 2g + 1
          to[0] = totals[(4 * first + e) * kThreads + thread()],
          to[1] = totals[(4 * first + 2 + e) * kThreads + thread()];
        };
        float values[4] = {}, others[4] = {};
        two(t, values);
        two(kTiles + t, others);
        finish_two_panels(m, part, panels, p, r, 2 * g, values, others);
      }
    }
  }

  DEVICE void operator()() const {
    const int together = work.gated != 0 ? kPanels / 2 : kPanels;
    int panel = block_x() * together;
    const LinearMatrix& m = find_matrix(work, panel, together);
    const LinearPart part = find_part(work, m);
    const TilePanels panels{part.data, part.up, panel, panels_of(m.w)};
    for (int row = block_y() * kRows; row < part.rows; row += blocks_y() * kRows) multiply_rows(m, part, panels, row);
  }
};

}  // namespace quire::cuda
