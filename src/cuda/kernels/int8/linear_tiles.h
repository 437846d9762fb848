// Linears of many rows with int8 inputs: prompts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/int8/codes.h"
#include "cuda/kernels/int8/inputs.h"
#include "cuda/kernels/int8/sums.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// As LinearOfTiles: a block computes kPanels panels by kRows rows, kDown warps share the panels and kAcross the rows, and codes
// and inputs come through shared memory in stages of two blocks. A warp multiplies all inputs of its results, and adds the
// products of a block in registers: in the order of the inputs, as the definition wants it.
template <class Format, ScaleForm kForm, int kTiles>
struct Int8LinearOfTiles {
  static constexpr const char* kName = "int8_linear_of_tiles";
  static constexpr int kDown = 2, kAcross = 2, kThreads = 32 * kDown * kAcross;
  static constexpr Codes kCodes = Format::kCodes;
  static constexpr int kGroups = Format::kGroups;
  static constexpr int kPanels = 2 * kDown, kRows = 8 * kTiles * kAcross;
  // A stage: the codes of rows of inputs, then what scales them, for each block, then the codes of weights. Block k of row r lies at
  // k ^ (r / 2 % 2), so that the four rows that half a warp reads together lie in different banks, and so do the scales of both
  // blocks of four rows, which are copied together.
  static constexpr int kStageBlocks = 2, kRowBytes = kStageBlocks * kInt8Block, kInfoAt = kRows * kRowBytes;
  static constexpr int kBlockInfoBytes = kRows * kInt8InfoBytes + 64,
                       kCodesAt = kInfoAt + kStageBlocks * kBlockInfoBytes;
  DEVICE static int info_at(int block, int row) { return kInfoAt + block * kBlockInfoBytes + row * kInt8InfoBytes; }
  static constexpr int kCodeBytes = kStageBlocks * kCodeBlockBytes<kCodes>;
  static constexpr int kStageBytes = kCodesAt + kPanels * kCodeBytes;
  static constexpr int kStages = 4;
  static constexpr int kResultBytes = kThreads * 2 * kTiles * 4 * static_cast<int>(sizeof(float));
  static constexpr int kSharedBytes = kStages * kStageBytes > kResultBytes ? kStages* kStageBytes : kResultBytes;
  static constexpr int kScales = kInt8Scales<Format>;

  LinearWork work;

  // Starts to copy a stage, with zeros in place of rows, panels and blocks that do not exist.
  DEVICE void copy_stage(const WeightShape& w, const TilePanels& panels, Global<const uint8_t> x, int rows,
                         int stage) const {
    const size_t base = static_cast<size_t>(stage % kStages) * kStageBytes;
    const int block = stage * kStageBlocks;
    if (block < w.blocks) {
      const auto inputs = shared<uint8_t>(base);
      const auto copy = [&](int r, int b, int from, int to) {
        const bool valid = r < rows && block + b < w.blocks;
        copy_async<16>(inputs + to, valid ? x + (static_cast<ptrdiff_t>(r) * work.x.stride + from) : x, valid);
      };
      constexpr int kOfBlock = kInt8Block / 16, kChunks = kStageBlocks * kOfBlock;
      ROLLED
      for (int k = thread(); k < kRows * kChunks; k += kThreads) {
        const int r = k / kChunks, b = k % kChunks / kOfBlock, c = k % kOfBlock;
        copy(r, b, (block + b) * kInt8Block + 16 * c, r * kRowBytes + (b ^ r / 2 % 2) * kInt8Block + 16 * c);
      }
      if constexpr (!Format::kWholeRows) {
        ROLLED
        for (int k = thread(); k < kRows * kStageBlocks; k += kThreads) {
          const int r = k / kStageBlocks, b = k % kStageBlocks;
          copy(r, b, w.blocks * kInt8Block + (block + b) * kInt8InfoBytes, info_at(b, r));
        }
      }
      constexpr int kPanelChunks = kCodeBytes / 16;
      const auto codes = shared<uint8_t>(base + kCodesAt);
      ROLLED
      for (int k = thread(); k < kPanels * kPanelChunks; k += kThreads) {
        const int p = k / kPanelChunks, c = k % kPanelChunks;
        const bool valid = panels.exists(p) && block + c / (kPanelChunks / kStageBlocks) < w.blocks;
        const auto from =
            valid ? panels.at(w, p) + (w.codes + static_cast<ptrdiff_t>(block) * kCodeBlockBytes<kCodes> + 16 * c)
                  : panels.data;
        copy_async<16>(codes + 16 * k, from, valid);
      }
    }
    commit_copies();
  }

  // Lane i has those of panel i / 2 of the warp and block i % 2 of the stage.
  DEVICE void load_stage_scales(const WeightShape& w, const TilePanels& panels, int stage,
                                ScaleWords (&to)[kGroups]) const {
    if constexpr (!Format::kWholeRows) {
      const int i = lane() % 4, p = warp() % kDown * 2 + i / 2, block = stage * kStageBlocks + i % 2;
      if (block < w.blocks && panels.exists(p)) load_int8_scales<Format, kForm>(w, panels.at(w, p), block, to);
    }
  }

  // Of outputs 2g and 2g + 1, those of lane 4g + from.
  DEVICE static void shuffle_int8_scales(const Int8Scales<Format> (&own)[2], int from, Int8Scales<Format> (&to)[2]) {
    UNROLL
    for (int o = 0; o < 2; ++o) {
      UNROLL
      for (int k = 0; k < kScales; ++k) to[o].v[k] = shuffle(own[o].v[k], lane() / 4 * 4 + from);
    }
  }

  struct Results {
    Int8Sum<Format> sums[Format::kWholeRows ? 1 : 2][kTiles][4];
    int32_t dots[2][Format::kWholeRows ? kTiles : 1][1][4];  // kWholeRows
  };

  // Block k of a stage.
  DEVICE void multiply_stage_block(const WeightShape& w, const Int8Numbers& numbers, const Int8Scales<Format> (&own)[2],
                                   int stage, int k, Results& to) const {
    const size_t base = static_cast<size_t>(stage % kStages) * kStageBytes;
    const auto codes = shared<const uint8_t>(base + kCodesAt);
    const int down = warp() % kDown, across = warp() / kDown, g = lane() / 4, i = lane() % 4;
    uint32_t a[2][4];
    Int8Scales<Format> scales[2][2];
    UNROLL
    for (int p = 0; p < 2; ++p) {
      CodeWords<kCodes> raw;
      load_codes<kCodes, false>(codes + ((2 * down + p) * kCodeBytes + k * kCodeBlockBytes<kCodes>), raw);
      decode_int8<kCodes>(raw, numbers, a[p]);
      if constexpr (!Format::kWholeRows) shuffle_int8_scales(own, 2 * p + k, scales[p]);
    }
    const bool last = ends_super(stage * kStageBlocks + k, w.blocks);
    UNROLL
    for (int t = 0; t < kTiles; ++t) {
      const int row = (across * kTiles + t) * 8;
      const Words<2> x =
          load<2>(shared<const uint8_t>(base) + ((row + g) * kRowBytes + (k ^ g / 2 % 2) * kInt8Block + 8 * i));
      if constexpr (Format::kWholeRows) {
        UNROLL
        for (int p = 0; p < 2; ++p) multiply_int8<1>(to.dots[p][t], a[p], x);
      } else {
        Int8BlockInfo info[2];
        UNROLL
        for (int e = 0; e < 2; ++e)
          info[e] = load_block_info<Format>(shared<const uint8_t>(base) + info_at(k, row + 2 * i + e));
        UNROLL
        for (int p = 0; p < 2; ++p) {
          int32_t d[kGroups][4];
          clear_products<kGroups>(d);
          multiply_int8<kGroups>(d, a[p], x);
          UNROLL
          for (int n = 0; n < 4; ++n) {
            int32_t products[kGroups];
            UNROLL
            for (int group = 0; group < kGroups; ++group) products[group] = d[group][n];
            to.sums[p][t][n].add(products, scales[p][n / 2], info[n % 2], last);
          }
        }
      }
    }
  }

  DEVICE void multiply_rows(const LinearMatrix& m, const LinearPart& part, const TilePanels& panels, int row) const {
    const WeightShape& w = m.w;
    const auto x = part.x + static_cast<ptrdiff_t>(row) * work.x.stride;
    const int rows = part.rows - row, stages = (w.blocks + kStageBlocks - 1) / kStageBlocks;
    const Int8Numbers numbers = int8_numbers<kCodes>(w);
    for (int s = 0; s < kStages - 1; ++s) copy_stage(w, panels, x, rows, s);
    ScaleWords next[kGroups] = {};
    load_stage_scales(w, panels, 0, next);

    Results results{};
    ROLLED
    for (int stage = 0; stage < stages; ++stage) {
      wait_copies<kStages - 2>();
      sync_block();  // all threads' copies are done, and all threads with the stage that is copied to next
      copy_stage(w, panels, x, rows, stage + kStages - 1);
      Int8Scales<Format> own[2] = {};
      if constexpr (!Format::kWholeRows) {
        convert_int8_scales<Format, kForm>(w, next, own);
        load_stage_scales(w, panels, stage + 1, next);
      }
      ROLLED
      for (int k = 0; k < kStageBlocks && stage * kStageBlocks + k < w.blocks; ++k)
        multiply_stage_block(w, numbers, own, stage, k, results);
    }
    wait_copies<0>();
    sync_block();  // all threads are done with the stages
    write(m, part, panels, row, results);
    sync_block();  // the results have been read
  }

  // Through shared memory, where each thread has its own numbers, so that the loop that finishes outputs is not unrolled.
  DEVICE void write(const LinearMatrix& m, const LinearPart& part, const TilePanels& panels, int row,
                    const Results& results) const {
    const auto stored = shared<uint32_t>(0);
    UNROLL
    for (int k = 0; k < 8 * kTiles; ++k) {
      const int p = k / 4 / kTiles, t = k / 4 % kTiles, n = k % 4;
      uint32_t bits;
      if constexpr (Format::kWholeRows) {
        bits = static_cast<uint32_t>(results.dots[p][t][0][n]);
      } else {
        bits = float_bits(results.sums[p][t][n].value());
      }
      stored[k * kThreads + thread()] = bits;
    }
    const int g = lane() / 4, i = lane() % 4, p = warp() % kDown * 2;
    ROLLED
    for (int t = 0; t < kTiles; ++t) {
      ROLLED
      for (int e = 0; e < 2; ++e) {
        const int r = row + (warp() / kDown * kTiles + t) * 8 + 2 * i + e;
        if (r >= part.rows) continue;
        const auto two = [&](int of, float(&to)[4]) {  // outputs 2g and 2g + 1 of panel p + of
          if (!panels.exists(p + of)) return;
          UNROLL
          for (int o = 0; o < 2; ++o) {
            const uint32_t bits = stored[(4 * (of * kTiles + t) + 2 * o + e) * kThreads + thread()];
            if constexpr (Format::kWholeRows) {
              to[o] = finish_int8_row(m.w, panels.at(m.w, p + of), 2 * g + o,
                                      part.x + static_cast<ptrdiff_t>(r) * work.x.stride, static_cast<int32_t>(bits));
            } else {
              to[o] = bits_float(bits);
            }
          }
        };
        float values[4] = {}, others[4] = {};
        two(0, values);
        two(1, others);
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
