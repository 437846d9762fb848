// Linears of a few rows: decoding, whose speed is that of reading weights.
#pragma once

#include <bit>
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

// Block (x, y, z): panels [kPanels x, kPanels (x + 1)) of the matrices, or with gated matrices panel x of W and of `up`; rows
// [8 kTiles y, 8 kTiles (y + 1)), and every 8 kTiles blocks_y() rows after these; part z. Each warp has one of the kSplits
// ranges of the inputs, for all panels, whose weights go to registers and whose inputs to shared memory of its own: so all of
// the panels is requested at once, and nothing but the ranges' sums goes from warp to warp.
//
// With ScaleForm::kHalf each lane loads the scales of its own outputs; others are converted by a lane for each block, and
// shuffled.
template <class Format, int kTerms, int kTiles, int kOfPanels, ScaleForm kForm>
struct LinearOfRows {
  static constexpr const char* kName = "linear_of_rows";
  static constexpr int kThreads = 32 * kSplits;
  static constexpr bool kWaits = true;
  // Of a warp's weights of a panel, while earlier launches finish.
  static constexpr int kPrefetchedBytes = 8 << 10;
  static constexpr Codes kCodes = Format::kCodes;
  static constexpr int kGroups = Format::kGroups, kOwnTerms = kWeightTerms<kCodes, kTerms>;
  static constexpr int kPanels = kOfPanels, kRows = 8 * kTiles;
  static constexpr bool kOwnScales = kForm == ScaleForm::kHalf;  // each lane has those of all blocks
  static_assert(kForm == ScaleForm::kAny || Format::kScales);

  // Blocks that are loaded together, while those before them are multiplied: 16 words of codes, where inputs leave shared
  // memory for two thread blocks on a processor. At most 4 unless kOwnScales, see Batch::scales.
  static constexpr int least(int a, int b) { return a < b ? a : b; }
  static constexpr int kOfWords = static_cast<int>(std::bit_floor(16u / (kPanels * kCodeWords<kCodes>)));
  static constexpr int kMostBatch = kOwnScales && !Format::kMinima ? 8 : 4;
  static constexpr int kBatch = kTerms > 1 || kOfWords == 0 ? 1 : least(least(kMostBatch, kOfWords), 8 / kTiles);

  // Inputs of a batch, and their sums, in shared memory: each warp has its own, for the batch that is multiplied and the next.
  // After the rows are zeros, in place of rows that do not exist. Rows are padded, so that the eight that load_matrices()
  // reads together lie in different banks; and the zeros are in other banks than the first four.
  static constexpr int kRowPitch = kBatch * kPreparedBlock + 16, kZerosAt = kRows * kRowPitch + 64;
  static constexpr int kTermBytes = kZerosAt + kBatch * kPreparedBlock;
  static constexpr int kSumsAt = kTerms * kTermBytes;  // [kRows + 1][kBatch][2]
  static constexpr int kSlotBytes = (kSumsAt + (Format::kMinima ? (kRows + 1) * kBatch * 8 : 0) + 15) / 16 * 16;
  // Then the sums of the warp's range, [kPanels][kRows][16 outputs]. Padded, so that the four of 16 lanes that store together
  // do not collide.
  static constexpr int kRowFloats = kPanel + 4, kSumFloats = kRows * kRowFloats;
  static constexpr int kWarpBytes = 2 * kSlotBytes > kPanels* kSumFloats * 4 ? 2 * kSlotBytes : kPanels* kSumFloats * 4;
  static constexpr int kSharedBytes = kSplits * kWarpBytes;
  // Thread blocks that a processor must have room for, which bounds the registers of a thread to 80, 128 or 255: as many as
  // leave enough of them.
  static constexpr bool kWide = kTerms > 1 || kCodes == Codes::kF16 || kCodes == Codes::kF32 ||
                                (Format::kScales ? kTiles > 1 || (Format::kHalves && Format::kMinima)
                                                 : kTiles* kPanels == 1);
  static constexpr int kBlocks = kWide ? 1 : kTiles * kPanels == 1 && !Format::kHalves ? 3 : 2;

  LinearWork work;

  // Weights of a batch of one panel.
  struct Batch {
    CodeWords<kCodes> codes[kBatch];
    // kOwnScales: of each block. Otherwise lane i has those of block i of the batch, or of its halves.
    ScaleWords scales[kOwnScales ? kBatch : kGroups];
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
    if constexpr (kOwnScales) {
      const auto first = panel + 2 * kPanel * block;
      UNROLL
      for (int k = 0; k < kBatch; ++k)
        if (kWhole || k < count) load_scales_as<kForm>(w, first, k, 0, Format::kMinima, lane() / 4, to.scales[k]);
    } else if constexpr (Format::kScales) {
      const int own = lane() % 4;
      if (own < (kWhole ? kBatch : count)) {
        UNROLL
        for (int half = 0; half < kGroups; ++half)
          load_scales_as<kForm>(w, panel, block + own, half, Format::kMinima, lane() / 4, to.scales[half]);
      }
    }
  }
  DEVICE static void load_batch(const WeightShape& w, const Global<const uint8_t> (&panels)[kPanels], int block,
                                int end, Batch (&to)[kPanels]) {
    UNROLL
    for (int p = 0; p < kPanels; ++p) {
      if (block + kBatch <= end) {
        load_blocks<true>(w, panels[p], block, kBatch, to[p]);
      } else {
        load_blocks<false>(w, panels[p], block, end - block, to[p]);
      }
    }
  }

  DEVICE static size_t slot_of(int batch) { return static_cast<size_t>(warp() * kWarpBytes + batch % 2 * kSlotBytes); }

  // Starts to copy the inputs of blocks [block, block + count) to the slot of a batch.
  DEVICE static void copy_inputs(const InputRows& in, int block, int count, int batch) {
    constexpr int kChunks = kBatch * kPreparedBlock / 16;
    const auto slot = shared<uint8_t>(slot_of(batch));
    const int rows = in.rows < kRows ? in.rows : kRows;
    ROLLED
    for (int k = lane(); k < rows * kChunks; k += 32) {
      const int r = k / kChunks, c = k % kChunks;
      if (c / (kPreparedBlock / 16) >= count) continue;
      const auto from = in.x + (static_cast<ptrdiff_t>(r) * in.stride + block * kPreparedBlock + 16 * c);
      const auto to = slot + (r * kRowPitch + 16 * c);
      UNROLL
      for (int u = 0; u < kTerms; ++u) copy_async<16>(to + u * kTermBytes, from + u * in.term_bytes);
    }
    if constexpr (Format::kMinima) {
      ROLLED
      for (int k = lane(); k < rows * kBatch; k += 32) {
        const int r = k / kBatch, b = k % kBatch;
        if (b >= count) continue;
        const auto from = in.x + (static_cast<ptrdiff_t>(r) * in.stride + kTerms * in.term_bytes + 8 * (block + b));
        copy_async<8>(slot + (kSumsAt + 8 * k), from);
      }
    }
    commit_copies();
  }

  // Zeros for rows that do not exist, in both slots.
  DEVICE static void clear_inputs() {
    UNROLL
    for (int batch = 0; batch < 2; ++batch) {
      const auto slot = shared<uint8_t>(slot_of(batch));
      UNROLL
      for (int u = 0; u < kTerms; ++u) {
        for (int k = lane(); k < kBatch * kPreparedBlock / 16; k += 32)
          store(slot + (u * kTermBytes + kZerosAt + 16 * k), Words<4>{});
      }
      if constexpr (Format::kMinima) {
        if (lane() < kBatch) store(slot + (kSumsAt + 8 * (kRows * kBatch + lane())), Words<2>{});
      }
    }
  }

  // The scales of block k of a batch. own: the lane's, converted.
  DEVICE static void scales_of(const WeightShape& w, const Batch& batch, const Scales (&own)[kGroups], int k,
                               Scales (&to)[kGroups]) {
    if constexpr (kOwnScales) {
      to[0] = convert_scales_as<kForm>(w, batch.scales[k], Format::kMinima);
    } else if constexpr (Format::kScales) {
      UNROLL
      for (int half = 0; half < kGroups; ++half) to[half] = shuffle_scales<Format::kMinima>(own[half], k);
    }
  }

  // acc[p][t] += the part of a batch in the sums of rows 8t .. 8t+7. words_of(t, k, u): fills the inputs of block k, term u;
  // sums_of(t, k, r): the sums of its halves, of the lane's row r of two.
  template <bool kWhole, class WordsOf, class SumsOf>
  DEVICE static void multiply_blocks(const WeightShape& w, const TableWords (&tables)[kOwnTerms],
                                     const Batch (&batch)[kPanels], int count, const WordsOf& words_of,
                                     const SumsOf& sums_of, float (&acc)[kPanels][kTiles][4]) {
    Scales own[kPanels][kGroups] = {};
    if constexpr (Format::kScales && !kOwnScales) {
      UNROLL
      for (int p = 0; p < kPanels; ++p) {
        UNROLL
        for (int half = 0; half < kGroups; ++half)
          own[p][half] = convert_scales_as<kForm>(w, batch[p].scales[half], Format::kMinima);
      }
    }
    UNROLL
    for (int k = 0; k < kBatch; ++k) {
      if (!kWhole && k >= count) break;
      WeightWords weights[kPanels][kOwnTerms];
      Scales scales[kPanels][kGroups] = {};
      UNROLL
      for (int p = 0; p < kPanels; ++p) {
        decode_terms<kCodes>(batch[p].codes[k], {w.exponents, w.zero}, tables, weights[p]);
        scales_of(w, batch[p], own[p], k, scales[p]);
      }
      UNROLL
      for (int t = 0; t < kTiles; ++t) {
        InputWords<kTerms> words;
        UNROLL
        for (int u = 0; u < kTerms; ++u) words_of(t, k, u, words.b[u]);
        float sums[2][2] = {};
        if constexpr (Format::kMinima) {
          UNROLL
          for (int r = 0; r < 2; ++r) {
            const Words<2> halves = sums_of(t, k, r);
            sums[r][0] = bits_float(halves.w[0]), sums[r][1] = bits_float(halves.w[1]);
          }
        }
        UNROLL
        for (int p = 0; p < kPanels; ++p) multiply_block<Format, kTerms>(acc[p][t], weights[p], words, scales[p], sums);
      }
    }
  }
  // The inputs are those of a slot, which has so many rows.
  template <bool kWhole>
  DEVICE static void multiply_slot(const WeightShape& w, const TableWords (&tables)[kOwnTerms],
                                   const Batch (&batch)[kPanels], int rows, size_t slot, int count,
                                   float (&acc)[kPanels][kTiles][4]) {
    const auto inputs = shared<const uint8_t>(slot);
    const auto words_of = [&](int t, int k, int u, auto& words) {
      const int row = 8 * t + lane() % 8, at = row < rows ? row * kRowPitch : kZerosAt;
      load_matrices(words, inputs + (u * kTermBytes + at + k * kPreparedBlock + 16 * (lane() / 8)));
    };
    const auto sums_of = [&](int t, int k, int r) {
      const int row = 8 * t + 2 * (lane() % 4) + r;
      return load<2>(inputs + (kSumsAt + ((row < rows ? row : kRows) * kBatch + k) * 8));
    };
    multiply_blocks<kWhole>(w, tables, batch, count, words_of, sums_of, acc);
  }

  DEVICE static Shared<float> sums_of(int range) { return shared<float>(static_cast<size_t>(range * kWarpBytes)); }

  // The sums of the warp's range, left in shared memory.
  DEVICE static void sum_range(const WeightShape& w, const Global<const uint8_t> (&panels)[kPanels],
                               const InputRows& in) {
    const int begin = range_begin(w.blocks, warp()), end = range_begin(w.blocks, warp() + 1);
    const int batches = (end - begin + kBatch - 1) / kBatch;
    TableWords tables[kOwnTerms] = {};
    load_tables<kCodes>(w.tables, tables);
    float acc[kPanels][kTiles][4] = {};
    if (batches > 0) {
      // Two batches take turns: if one were copied to the other, it would have to come before the next is requested.
      Batch even[kPanels] = {}, odd[kPanels] = {};
      load_batch(w, panels, begin, end, even);
      copy_inputs(in, begin, end - begin, 0);
      clear_inputs();
      const int whole = (end - begin) / kBatch;
      const auto multiply = [&](int batch, const Batch(&now)[kPanels], Batch(&next)[kPanels]) {
        const int following = begin + (batch + 1) * kBatch;
        if (following < end) load_batch(w, panels, following, end, next);
        sync_warp();  // all lanes have read what the slot holds
        copy_inputs(in, following, end - following, batch + 1);
        wait_copies<1>();
        sync_warp();
        multiply_slot<true>(w, tables, now, in.rows, slot_of(batch), kBatch, acc);
      };
      int batch = 0;
      for (; batch + 1 < whole; batch += 2) {
        multiply(batch, even, odd);
        multiply(batch + 1, odd, even);
      }
      if (batch < whole) {
        multiply(batch++, even, odd);
        UNROLL
        for (int p = 0; p < kPanels; ++p) even[p] = odd[p];
      }
      wait_copies<0>();
      sync_warp();
      if (batch < batches)
        multiply_slot<false>(w, tables, even, in.rows, slot_of(batch), end - begin - batch * kBatch, acc);
    }
    sync_warp();
    store_sums(acc, sums_of(warp()));
  }

  // Leaves the sums of a range in shared memory, [kPanels][kRows][kRowFloats].
  DEVICE static void store_sums(const float (&acc)[kPanels][kTiles][4], Shared<float> to) {
    const int g = lane() / 4, i = lane() % 4;
    UNROLL
    for (int p = 0; p < kPanels; ++p) {
      UNROLL
      for (int t = 0; t < kTiles; ++t) {
        UNROLL
        for (int r = 0; r < 2; ++r)
          store(to + (p * kSumFloats + (8 * t + 2 * i + r) * kRowFloats + 2 * g),
                Words<2>{{float_bits(acc[p][t][r]), float_bits(acc[p][t][2 + r])}});
      }
    }
  }

  // Finishes results first, first + step, .. of the part's rows [row, row + rows), four outputs each, of the panels from `panel` on.
  // sums_of(s): where the sums of range s are; they are added in order.
  template <class SumsOf>
  DEVICE static void finish_rows(const LinearMatrix& m, const LinearPart& part, int panel, int row, int rows, int first,
                                 int step, const SumsOf& sums_of) {
    const bool gated = part.up != nullptr;
    const auto add_ranges = [&](int p, int r, int n, float(&to)[4]) {
      UNROLL
      for (int s = 0; s < kSplits; ++s) {
        const Words<4> sums = load<4>(sums_of(s) + (p * kSumFloats + r * kRowFloats + 4 * n));
        UNROLL
        for (int k = 0; k < 4; ++k) to[k] = s == 0 ? bits_float(sums.w[k]) : to[k] + bits_float(sums.w[k]);
      }
    };
    const int fours = gated ? kPanel / 4 : kPanels * kPanel / 4;
    for (int k = first; k < rows * fours; k += step) {
      const int r = k / fours, n = k % fours;
      float values[4], ups[4] = {};
      add_ranges(gated ? 0 : n / 4, r, n % 4, values);
      if constexpr (kPanels > 1) {
        if (gated) add_ranges(1, r, n, ups);
      }
      finish_outputs(m, part, row + r, panel * kPanel + 4 * n, 4, values, ups);
    }
  }

  // The addresses of the panels from `panel` on; with `up`, of a panel of both.
  DEVICE static void find_panels(const WeightShape& w, Global<const uint8_t> data, Global<const uint8_t> up, int panel,
                                 Global<const uint8_t> (&to)[kPanels]) {
    const bool gated = up != nullptr;
    UNROLL
    for (int p = 0; p < kPanels; ++p) {
      const int own = gated || panel + p >= panels_of(w) ? panel : panel + p;  // one that exists
      to[p] = (gated && p > 0 ? up : data) + static_cast<ptrdiff_t>(own) * w.panel_bytes;
    }
  }

  // Rows [row, row + kRows) of the part, as far as there are so many. panel: the first.
  DEVICE void multiply_rows(const LinearMatrix& m, const LinearPart& part, int panel, int row) const {
    const int rows = part.rows - row < kRows ? part.rows - row : kRows;
    const InputRows in{part.x + static_cast<ptrdiff_t>(row) * work.x.stride, work.x.stride, rows,
                       m.w.blocks * kPreparedBlock};
    Global<const uint8_t> panels[kPanels];
    find_panels(m.w, part.data, part.up, panel, panels);
    sync_block();  // the sums of earlier rows have been read
    sum_range(m.w, panels, in);
    sync_block();
    finish_rows(m, part, panel, row, rows, thread(), kThreads, [](int s) { return sums_of(s); });
  }

  // Fetches to the L2 cache what no launch writes: the weights of the warp's range, blocks [begin, end), and its part of the panels'
  // scales.
  DEVICE static void prefetch_range(const WeightShape& w, const Global<const uint8_t> (&panels)[kPanels], int begin,
                                    int end) {
    constexpr int kLine = 128;
    const int first = begin * kCodeBlockBytes<kCodes> / kLine * kLine, bytes = end * kCodeBlockBytes<kCodes> - first;
    UNROLL
    for (int p = 0; p < kPanels; ++p) {
      for (int k = kLine * lane(); k < bytes && k < kPrefetchedBytes; k += 32 * kLine)
        prefetch(panels[p] + (w.codes + first + k));
      if constexpr (Format::kScales) {
        const int scales = kLine * (warp() * 32 + lane());
        if (scales < w.codes) prefetch(panels[p] + scales);
      }
    }
  }

  DEVICE void operator()() const {
    int together = kPanels;
    if (work.gated != 0) together = 1;
    int panel = block_x() * together;
    const LinearMatrix& m = find_matrix(work, panel, together);
    if (work.parts.matrices == nullptr) {  // otherwise it is known only later which matrix it is
      Global<const uint8_t> panels[kPanels];
      find_panels(m.w, m.data, m.up, panel, panels);
      prefetch_range(m.w, panels, range_begin(m.w.blocks, warp()), range_begin(m.w.blocks, warp() + 1));
    }
    wait_previous();
    const LinearPart part = find_part(work, m);
    for (int row = block_y() * kRows; row < part.rows; row += blocks_y() * kRows) multiply_rows(m, part, panel, row);
  }
};

}  // namespace quire::cuda
