// Linears of a few rows: decoding, whose speed is that of reading weights.
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

// Block (x, y, z): panel x of the matrices; rows [8 kTiles y, 8 kTiles (y + 1)), and every 8 kTiles blocks_y() rows after
// these; part z. Each warp has one of the kSplits ranges of the inputs, with gated matrices of W and then of `up`. So all of a
// panel is requested at once, and nothing but the ranges' sums goes through shared memory: [kSplits][8 kTiles rows][16 outputs],
// twice if gated.
template <class Format, int kTerms, int kTiles>
struct LinearOfRows {
  static constexpr const char* kName = "linear_of_rows";
  static constexpr int kThreads = 32 * kSplits;
  static constexpr bool kWaits = true;
  // Of a warp's weights, while earlier launches finish.
  static constexpr int kPrefetchedBytes = 8 << 10;
  static constexpr Codes kCodes = Format::kCodes;
  static constexpr int kGroups = Format::kGroups, kOwnTerms = kWeightTerms<kCodes, kTerms>;
  static constexpr int kRows = 8 * kTiles;
  // Blocks that are loaded together, while those before them are multiplied: as many as leave registers for two thread blocks
  // on a processor. At most 4, see Batch::scales.
  static constexpr int kMostBatch = kCodes == Codes::kF32 ? 1 : kCodeWords<kCodes> >= 8 ? 2 : 4;
  static constexpr int kBatch = kTerms > 1 || kTiles > 2 ? 1 : kTiles > 1 && kMostBatch > 2 ? 2 : kMostBatch;
  // Inputs of a batch, and their sums, in shared memory: each warp has its own, for the batch that is multiplied and the next.
  // Rows are padded, so that the eight that load_matrices() reads together lie in different banks.
  static constexpr int kRowPitch = kBatch * kPreparedBlock + 16, kTermBytes = kRows * kRowPitch;
  static constexpr int kSumsAt = kTerms * kTermBytes;  // [kRows][kBatch][2]
  static constexpr int kSlotBytes = kSumsAt + (Format::kMinima ? kRows * kBatch * 8 : 0);
  static constexpr int kInputBytes = kSplits * 2 * kSlotBytes;
  static constexpr int kRowFloats =
      kPanel + 4;  // in shared memory: the four of 16 lanes that store together do not collide
  static constexpr int kSumFloats = kRows * kRowFloats;  // of a range
  static constexpr int shared_bytes(bool gated) {
    return kInputBytes + (gated ? 2 : 1) * kSplits * kSumFloats * static_cast<int>(sizeof(float));
  }

  LinearWork work;

  struct Batch {
    CodeWords<kCodes> codes[kBatch];
    ScaleWords scales[kGroups];  // lane i: of block i of the batch, or of its halves
  };
  // Rows of prepared inputs.
  struct InputRows {
    Global<const uint8_t> x;
    int stride, rows, term_bytes;
  };

  // Blocks [block, block + count) of a panel. kWhole: count is kBatch.
  template <bool kWhole>
  DEVICE static void load_blocks(const WeightShape& w, Global<const uint8_t> panel, int block, int count, Batch& to) {
    const auto codes = panel + (w.codes + static_cast<ptrdiff_t>(block) * kCodeBlockBytes<kCodes>);
    UNROLL
    for (int k = 0; k < kBatch; ++k) {
      if (kWhole || k < count) load_codes<kCodes, true>(codes + k * kCodeBlockBytes<kCodes>, to.codes[k]);
    }
    if constexpr (Format::kScales) {
      const int own = lane() % 4;
      if (own < (kWhole ? kBatch : count)) {
        UNROLL
        for (int half = 0; half < kGroups; ++half)
          load_scales(w, panel, block + own, half, lane() / 4, to.scales[half]);
      }
    }
  }
  DEVICE static void load_batch(const WeightShape& w, Global<const uint8_t> panel, int block, int end, Batch& to) {
    if (block + kBatch <= end) {
      load_blocks<true>(w, panel, block, kBatch, to);
    } else {
      load_blocks<false>(w, panel, block, end - block, to);
    }
  }

  // Starts to copy the inputs of blocks [block, block + count) to the slot of a batch.
  DEVICE static void copy_inputs(const InputRows& in, int block, int count, int batch) {
    constexpr int kChunks = kBatch * kPreparedBlock / 16;
    const size_t slot = static_cast<size_t>((warp() * 2 + batch % 2) * kSlotBytes);
    const int rows = in.rows < kRows ? in.rows : kRows;
    ROLLED
    for (int k = lane(); k < rows * kChunks; k += 32) {
      const int r = k / kChunks, c = k % kChunks;
      if (c / (kPreparedBlock / 16) >= count) continue;
      const auto from = in.x + (static_cast<ptrdiff_t>(r) * in.stride + block * kPreparedBlock + 16 * c);
      const auto to = shared<uint8_t>(slot) + (r * kRowPitch + 16 * c);
      UNROLL
      for (int u = 0; u < kTerms; ++u) copy_async<16>(to + u * kTermBytes, from + u * in.term_bytes);
    }
    if constexpr (Format::kMinima) {
      ROLLED
      for (int k = lane(); k < rows * kBatch; k += 32) {
        const int r = k / kBatch, b = k % kBatch;
        if (b >= count) continue;
        const auto from = in.x + (static_cast<ptrdiff_t>(r) * in.stride + kTerms * in.term_bytes + 8 * (block + b));
        copy_async<8>(shared<uint8_t>(slot) + (kSumsAt + 8 * k), from);
      }
    }
    commit_copies();
  }

  // Rows that do not exist are zeros in both slots.
  DEVICE static void clear_inputs(const InputRows& in) {
    constexpr int kChunks = kBatch * kPreparedBlock / 16;
    const int missing = kRows - in.rows;
    ROLLED
    for (int batch = 0; batch < 2; ++batch) {
      const auto slot = shared<uint8_t>(static_cast<size_t>((warp() * 2 + batch) * kSlotBytes));
      ROLLED
      for (int k = lane(); k < missing * kChunks; k += 32) {
        UNROLL
        for (int u = 0; u < kTerms; ++u)
          store(slot + (u * kTermBytes + (in.rows + k / kChunks) * kRowPitch + 16 * (k % kChunks)), Words<4>{});
      }
      if constexpr (Format::kMinima) {
        ROLLED
        for (int k = lane(); k < missing * kBatch; k += 32)
          store(slot + (kSumsAt + 8 * (in.rows * kBatch + k)), Words<2>{});
      }
    }
  }

  // acc[t] += the part of block k of a batch in the sums of rows 8t .. 8t+7.
  DEVICE static void multiply_rows_block(const WeightWords (&weights)[kOwnTerms], const Scales (&scales)[kGroups],
                                         size_t slot, int k, float (&acc)[kTiles][4]) {
    const auto inputs = shared<const uint8_t>(slot);
    UNROLL
    for (int t = 0; t < kTiles; ++t) {
      InputWords<kTerms> words;
      UNROLL
      for (int u = 0; u < kTerms; ++u) {
        load_matrices(words.b[u], inputs + (u * kTermBytes + (8 * t + lane() % 8) * kRowPitch + k * kPreparedBlock +
                                            16 * (lane() / 8)));
      }
      float sums[2][2] = {};
      if constexpr (Format::kMinima) {
        UNROLL
        for (int r = 0; r < 2; ++r) {
          const Words<2> halves = load<2>(inputs + (kSumsAt + ((8 * t + 2 * (lane() % 4) + r) * kBatch + k) * 8));
          sums[r][0] = bits_float(halves.w[0]), sums[r][1] = bits_float(halves.w[1]);
        }
      }
      multiply_block<Format, kTerms>(acc[t], weights, words, scales, sums);
    }
  }

  template <bool kWhole>
  DEVICE static void multiply_blocks(const WeightShape& w, const TableWords (&tables)[kOwnTerms], const Batch& batch,
                                     size_t slot, int count, float (&acc)[kTiles][4]) {
    Scales own[kGroups] = {};
    if constexpr (Format::kScales) {
      UNROLL
      for (int half = 0; half < kGroups; ++half) own[half] = convert_scales(w, batch.scales[half]);
    }
    UNROLL
    for (int k = 0; k < kBatch; ++k) {
      if (!kWhole && k >= count) break;
      WeightWords weights[kOwnTerms];
      decode_terms<kCodes>(batch.codes[k], {w.exponents, w.zero}, tables, weights);
      Scales scales[kGroups] = {};
      if constexpr (Format::kScales) {
        UNROLL
        for (int half = 0; half < kGroups; ++half) scales[half] = shuffle_scales<Format::kMinima>(own[half], k);
      }
      multiply_rows_block(weights, scales, slot, k, acc);
    }
  }

  // Stores the warp's sums as those of a range; of W or of `up`. Then they are zero.
  DEVICE static void store_sums(int sums, float (&acc)[kTiles][4]) {
    const auto to = shared<float>(kInputBytes) + sums * kSumFloats;
    const int g = lane() / 4, i = lane() % 4;
    UNROLL
    for (int t = 0; t < kTiles; ++t) {
      UNROLL
      for (int r = 0; r < 2; ++r) {
        store(to + ((8 * t + 2 * i + r) * kRowFloats + 2 * g),
              Words<2>{{float_bits(acc[t][r]), float_bits(acc[t][2 + r])}});
        acc[t][r] = acc[t][2 + r] = 0;
      }
    }
  }

  // A range of the panel of W, and then of that of `up`, as one stream of batches.
  DEVICE static void sum_range(const WeightShape& w, Global<const uint8_t> panel, Global<const uint8_t> up,
                               const InputRows& in, int range) {
    const int begin = range_begin(w.blocks, range), end = range_begin(w.blocks, range + 1);
    const int batches = (end - begin + kBatch - 1) / kBatch, all = up != nullptr ? 2 * batches : batches;
    TableWords tables[kOwnTerms] = {};
    load_tables<kCodes>(w.tables, tables);
    float acc[kTiles][4] = {};
    if (batches == 0) {
      store_sums(range, acc);
      if (up != nullptr) store_sums(kSplits + range, acc);
      return;
    }
    Batch now{}, next{};
    load_batch(w, panel, begin, end, now);
    copy_inputs(in, begin, end - begin, 0);
    clear_inputs(in);
    int block = begin;
    for (int batch = 0; batch < all; ++batch) {
      const int following = block + kBatch < end ? block + kBatch : begin;
      if (batch + 1 < all) load_batch(w, batch + 1 < batches ? panel : up, following, end, next);
      sync_warp();  // all lanes have read what the slot holds
      copy_inputs(in, following, batch + 1 < all ? end - following : 0, batch + 1);
      wait_copies<1>();
      sync_warp();
      const size_t slot = static_cast<size_t>((warp() * 2 + batch % 2) * kSlotBytes);
      if (block + kBatch <= end) {
        multiply_blocks<true>(w, tables, now, slot, kBatch, acc);
      } else {
        multiply_blocks<false>(w, tables, now, slot, end - block, acc);
      }
      if (batch + 1 == batches) store_sums(range, acc);
      block = following;
      now = next;
    }
    wait_copies<0>();
    if (up != nullptr) store_sums(kSplits + range, acc);
  }

  // Rows [row, row + kRows) of the part, as far as there are so many.
  DEVICE void multiply_rows(const LinearMatrix& m, const LinearPart& part, int panel, int row) const {
    const int rows = part.rows - row;
    const auto at = static_cast<ptrdiff_t>(panel) * m.w.panel_bytes;
    const InputRows in{part.x + static_cast<ptrdiff_t>(row) * work.x.stride, work.x.stride, rows,
                       m.w.blocks * kPreparedBlock};
    sync_block();  // the sums of earlier rows have been read
    sum_range(m.w, part.data + at, part.up != nullptr ? part.up + at : part.up, in, warp());
    sync_block();
    const auto sums = shared<float>(kInputBytes);
    for (int k = thread(); k < kRows * kPanel; k += kThreads) {
      const int r = k / kPanel, o = k % kPanel, output = panel * kPanel + o;
      if (r >= rows || output >= m.w.rows) continue;
      const auto total = [&](int first) {
        float sum = sums[first * kSumFloats + r * kRowFloats + o];
        UNROLL
        for (int s = 1; s < kSplits; ++s) sum += sums[(first + s) * kSumFloats + r * kRowFloats + o];
        return sum;
      };
      finish_output(m, part, row + r, output, total(0), part.up != nullptr ? total(kSplits) : 0.0f);
    }
  }

  // Weights of the warp's range, which no launch writes. Which matrix it is may be known only later: then nothing.
  DEVICE void prefetch_range(const LinearMatrix& m, int panel) const {
    if (work.parts.matrices != nullptr) return;
    const int begin = range_begin(m.w.blocks, warp()), end = range_begin(m.w.blocks, warp() + 1);
    constexpr int kLine = 128;
    const auto at = m.data + (static_cast<ptrdiff_t>(panel) * m.w.panel_bytes + m.w.codes);
    const int first = begin * kCodeBlockBytes<kCodes> / kLine * kLine, bytes = end * kCodeBlockBytes<kCodes> - first;
    for (int k = kLine * lane(); k < bytes && k < kPrefetchedBytes; k += 32 * kLine) prefetch(at + (first + k));
  }

  DEVICE void operator()() const {
    int panel = block_x();
    const LinearMatrix& m = find_matrix(work, panel, 1);
    prefetch_range(m, panel);
    wait_previous();
    const LinearPart part = find_part(work, m);
    for (int row = block_y() * kRows; row < part.rows; row += blocks_y() * kRows) multiply_rows(m, part, panel, row);
  }
};

}  // namespace quire::cuda
