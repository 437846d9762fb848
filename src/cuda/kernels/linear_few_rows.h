// Linears of up to 8 rows, whose inputs fit into shared memory: decoding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/linear_rows.h"
#include "cuda/kernels/normed_eights.h"
#include "cuda/kernels/prepared_row.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/warp_sums.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// LinearOfRows, with the same bits, by thread blocks that stay. There are as many as the processors have room for, and block x
// computes tiles x, x + blocks_x(), ... of kPanels panels each (with gated matrices a panel of W and its one of `up`). The inputs
// of a warp's range are held in shared memory for all of them. While a tile is multiplied, the weights of the next are on their way to
// the L2 cache, and its first ones to registers. So nothing but weights comes from memory, and they always do.
//
// With `late` rows each block prepares the inputs itself, instead of a launch before: their norm, and their rounding. The bits are
// those of PrepareHeldInputs.
template <class Format, int kOfPanels, ScaleForm kForm>
struct LinearOfFewRows {
  using Rows = LinearOfRows<Format, 1, 1, kOfPanels, kForm>;
  using Batch = typename Rows::Batch;
  static constexpr const char* kName = "linear_of_few_rows";
  static constexpr int kThreads = Rows::kThreads, kPanels = kOfPanels, kBatch = Rows::kBatch, kMostRows = 8;
  static constexpr bool kWaits = true;
  static constexpr Codes kCodes = Format::kCodes;
  // That a processor has room for: of 80, 128 or 255 registers a thread.
  static constexpr bool kWide = Rows::kBlocks < 2 || (kHasTable<kCodes> && Format::kHalves && kPanels == 2);
  static constexpr int kBlocks = kCodes == Codes::kBf16 ? 3 : kWide ? 1 : 2;
  static constexpr int kBatchBytes = kBatch * kPreparedBlock;
  static constexpr int kRangeSums = kPanels * Rows::kSumFloats * 4;  // bytes

  static constexpr int kPreparingThreads = 1024;  // that PrepareHeldInputs has, at most

  LinearWork work;
  int32_t tiles, range_blocks;  // range_blocks: the most blocks of a range
  NormedRows late;              // of LateInputs; x.data is nullptr: work.x is prepared

  // Shared memory of a warp: its rows; zeros in place of others, in other banks than the first row; sums of inputs, of its rows and of
  // one without any, [rows + 1][range_blocks][2]. After those of all warps the results of ranges of two tiles in turn, and before them
  // sums of squares of late rows, [rows][32].
  static constexpr int pitch(int range_blocks) { return range_blocks * kPreparedBlock + 16; }
  static constexpr int zeros_at(int rows, int range_blocks) {
    return (rows * pitch(range_blocks) + 127) / 128 * 128 + 64;
  }
  static constexpr int sums_at(int rows, int range_blocks) { return zeros_at(rows, range_blocks) + kBatchBytes; }
  static constexpr int warp_bytes(int rows, int range_blocks) {
    return (sums_at(rows, range_blocks) + (Format::kMinima ? (rows + 1) * range_blocks * 8 : 0) + 127) / 128 * 128;
  }
  static constexpr int shared_bytes(int rows, int range_blocks) {
    constexpr int kResults = 2 * kSplits * kRangeSums, kSquares = kMostRows * 32 * 4;
    return kSplits * warp_bytes(rows, range_blocks) + (kResults > kSquares ? kResults : kSquares);
  }

  DEVICE Shared<uint8_t> own() const {
    return shared<uint8_t>(static_cast<size_t>(warp() * warp_bytes(work.rows, range_blocks)));
  }
  DEVICE Shared<float> sums_of(int turn, int range) const {
    return shared<float>(
        static_cast<size_t>(kSplits * warp_bytes(work.rows, range_blocks) + (turn % 2 * kSplits + range) * kRangeSums));
  }

  struct Tile {
    int matrix, panel;
    Global<const uint8_t> panels[kPanels];
  };
  DEVICE Tile find_tile(int number) const {
    const int together = work.gated != 0 ? 1 : kPanels;
    Tile tile{0, number * together, {}};
    const LinearMatrix& m = find_matrix(work, tile.panel, together);
    tile.matrix = static_cast<int>(&m - work.matrices);
    Rows::find_panels(m.w, m.data, m.up, tile.panel, tile.panels);
    return tile;
  }

  // Brings the inputs of blocks [begin, end), the warp's range.
  DEVICE void hold_inputs(int begin, int end) const {
    const auto to = own();
    const int pieces = (end - begin) * (kPreparedBlock / 16);
    for (int r = 0; r < work.rows; ++r) {
      const auto row = work.x.data + static_cast<ptrdiff_t>(r) * work.x.stride;
      for (int k = lane(); k < pieces; k += 32)
        copy_async<16>(to + (r * pitch(range_blocks) + 16 * k), row + (begin * kPreparedBlock + 16 * k));
      if constexpr (Format::kMinima) {
        const auto sums = row + work.matrices[0].w.blocks * kPreparedBlock;
        for (int k = lane(); k < end - begin; k += 32)
          copy_async<8>(to + (sums_at(work.rows, range_blocks) + (r * range_blocks + k) * 8), sums + 8 * (begin + k));
      }
    }
    commit_copies();
    wait_copies<0>();
  }

  // The same of late rows.
  DEVICE void prepare_inputs(int begin, int end) const {
    const int eights = 4 * work.matrices[0].w.blocks;
    const int parts = eights < kPreparingThreads ? (eights + 31) / 32 : 32;  // warps of PrepareHeldInputs
    const auto squares = sums_of(0, 0);
    if (late.norm != NormKind::kNone) {
      ROLLED
      for (int k = warp(); k < work.rows * parts; k += kThreads / 32) {
        const int r = k / parts;
        float sum = 0;
        for (int eight = k % parts * 32 + lane(); eight < eights; eight += kPreparingThreads)
          late.add_squares(late.load(late.x.row(r), eight), eight, 0, sum);
        sum = sum_of_warp(sum);
        if (lane() == 0) squares[r * 32 + k % parts] = sum;
      }
      sync_block();
    }
    ROLLED
    for (int r = 0; r < work.rows; ++r) {
      float factor = 1;
      if (late.norm != NormKind::kNone)
        factor = late.factor(sum_of_warp(lane() < parts ? float(squares[r * 32 + lane()]) : 0.0f));
      const auto to = own() + r * pitch(range_blocks);
      ROLLED
      for (int first = 4 * begin; first < 4 * end; first += 32) {  // whole warps
        const int eight = first + lane(), in_range = eight - 4 * begin;
        Eight values = late.load(late.x.row(r), eight), weights{};
        if (late.weight != nullptr) weights = late.load(late.weight, eight);
        late.apply(values, weights, eight, 0, factor);
        const RoundedEight<1> rounded = round_eight<1>(values.v);
        if (eight >= 4 * end) continue;
        UNROLL
        for (int j = 0; j < 4; ++j) store(to + word_at(in_range, j), Words<1>{{rounded.words[0][j]}});
        if constexpr (Format::kMinima) {
          if (eight % 2 == 0) {
            const int at = sums_at(work.rows, range_blocks) + r * range_blocks * 8 + 4 * (in_range / 2);
            store(own() + at, Words<1>{{float_bits(rounded.sixteen)}});
          }
        }
      }
    }
    sync_block();  // the squares have been read
  }

  // What is there for rows that are not.
  DEVICE void clear_others() const {
    for (int k = lane(); k < kBatchBytes / 16; k += 32)
      store(own() + (zeros_at(work.rows, range_blocks) + 16 * k), Words<4>{});
    if constexpr (Format::kMinima) {
      for (int k = lane(); k < range_blocks; k += 32)
        store(own() + (sums_at(work.rows, range_blocks) + (work.rows * range_blocks + k) * 8), Words<2>{});
    }
  }

  DEVICE void operator()() const {
    Tile tile = find_tile(block_x());
    const int blocks = work.matrices[0].w.blocks;
    const int begin = range_begin(blocks, warp()), end = range_begin(blocks, warp() + 1);
    const int whole = (end - begin) / kBatch, rest = (end - begin) % kBatch;
    // Two batches take turns: if one were copied to the other, it would have to come before the next is requested.
    Batch even[kPanels] = {}, odd[kPanels] = {};
    if (begin < end) Rows::load_batch(work.matrices[tile.matrix].w, tile.panels, begin, end, even);
    Rows::prefetch_range(work.matrices[tile.matrix].w, tile.panels, begin, end);
    clear_others();
    wait_previous();
    if (late.x.data == nullptr) {
      hold_inputs(begin, end);
    } else {
      prepare_inputs(begin, end);
    }
    sync_warp();

    const int row = lane() % 8, i = lane() % 4;
    const auto words_from =
        own() + ((row < work.rows ? row * pitch(range_blocks) : zeros_at(work.rows, range_blocks)) + 16 * (lane() / 8));
    const int batch_step = row < work.rows ? kBatchBytes : 0;
    const auto sums_row = [&](int r) {
      return own() +
             (sums_at(work.rows, range_blocks) + (2 * i + r < work.rows ? 2 * i + r : work.rows) * range_blocks * 8);
    };

    ROLLED
    for (int turn = 0, number = block_x(); number < tiles; ++turn) {
      const int next_number = number + blocks_x();
      const bool more = next_number < tiles;
      Tile next = tile;
      if (more) {
        next = find_tile(next_number);
        Rows::prefetch_range(work.matrices[next.matrix].w, next.panels, begin, end);
      }
      const WeightShape& w = work.matrices[tile.matrix].w;
      TableWords tables[Rows::kOwnTerms] = {};
      load_tables<kCodes>(w.tables, tables);
      float acc[kPanels][1][4] = {};
      // Requests the batch after this one.
      const auto request = [&](int batch, Batch(&to)[kPanels]) {
        const int following = begin + (batch + 1) * kBatch;
        const bool same = following < end;
        if (!same && !more) return;
        Global<const uint8_t> panels[kPanels];
        UNROLL
        for (int p = 0; p < kPanels; ++p) panels[p] = same ? tile.panels[p] : next.panels[p];
        Rows::load_batch(work.matrices[same ? tile.matrix : next.matrix].w, panels, same ? following : begin, end, to);
      };
      const auto multiply = [&]<bool kWhole>(int batch, const Batch(&now)[kPanels]) {
        const auto words_at = words_from + batch * batch_step;
        const auto first_sums = sums_row(0) + batch * (8 * kBatch), second_sums = sums_row(1) + batch * (8 * kBatch);
        Rows::template multiply_blocks<kWhole>(
            w, tables, now, rest,
            [&](int, int k, int, auto& words) { load_matrices(words, words_at + k * kPreparedBlock); },
            [&](int, int k, int r) { return load<2>((r == 0 ? first_sums : second_sums) + 8 * k); }, acc);
      };
      int batch = 0;
      ROLLED
      for (; batch + 1 < whole; batch += 2) {
        request(batch, odd);
        multiply.template operator()<true>(batch, even);
        request(batch + 1, even);
        multiply.template operator()<true>(batch + 1, odd);
      }
      if (batch < whole) {
        request(batch, odd);
        multiply.template operator()<true>(batch, even);
        ++batch;
        UNROLL
        for (int p = 0; p < kPanels; ++p) even[p] = odd[p];
      }
      if (rest > 0) {
        request(batch, odd);
        multiply.template operator()<false>(batch, even);
        UNROLL
        for (int p = 0; p < kPanels; ++p) even[p] = odd[p];
      }

      Rows::store_sums(acc, sums_of(turn, warp()));
      // One meeting a tile: the results of this one are read before the next, and overwritten after that.
      sync_block();
      if (warp() == turn % kSplits) {
        const LinearMatrix& m = work.matrices[tile.matrix];
        Rows::finish_rows(m, find_part(work, m), tile.panel, 0, work.rows, lane(), 32,
                          [&](int s) { return sums_of(turn, s); });
      }
      tile = next;
      number = next_number;
    }
  }
};

}  // namespace quire::cuda
