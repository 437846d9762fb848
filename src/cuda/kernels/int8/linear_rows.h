// Linears of a few rows with int8 inputs: decoding.
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

// block_x(), block_y() and block_z() are as with LinearOfRows: two panels by 8 kTiles rows.
//
// Warps share the blocks of 32 inputs. Of a chunk, kChunk blocks, each multiplies kBatch and leaves the products in shared memory
// with what scales them. Then each thread adds those of kTiles results in the order of the inputs, while the weights of the
// next chunk are on their way to registers. Whole rows (kInt8Row) need no order: each warp adds its products in
// registers, and the warps' sums are added at the end.
template <class Format, ScaleForm kForm, int kTiles>
struct Int8LinearOfRows {
  static constexpr const char* kName = "int8_linear_of_rows";
  static constexpr int kWarps = 8, kThreads = 32 * kWarps;
  static constexpr bool kWaits = true;
  static constexpr int kBlocks = 2;  // thread blocks that a processor must have room for
  static constexpr Codes kCodes = Format::kCodes;
  static constexpr int kGroups = Format::kGroups, kPanels = 2, kRows = 8 * kTiles;
  static_assert(kPanels * kPanel * kRows == kThreads * kTiles);
  static constexpr int kBatch = 4 / (kTiles * kGroups), kChunk = kWarps * kBatch;
  static_assert(kRows * kBatch <= 32);  // a lane has the scales of one row's block

  // Shared memory, for each block of a chunk: products [kPanels][kGroups][kRows][kPitch], scales [kPanels][kScales][kPanel], and
  // inputs' scales [kRows][4]. Rows and blocks are padded, so that lanes that store or load together do not collide.
  static constexpr int kPitch = kPanel + 4, kGroupInts = kRows * kPitch, kScales = kInt8Scales<Format>;
  static constexpr int kProductInts = kPanels * kGroups * kGroupInts;
  static constexpr int kScalesAt = 4 * kProductInts, kInputsAt = kScalesAt + 4 * kPanels * kScales * kPanel;
  static constexpr int kSlotBytes = (kInputsAt + kInt8InfoBytes * kRows + 127) / 128 * 128 + 32;
  static constexpr int kSharedBytes = (Format::kWholeRows ? kWarps : kChunk) * kSlotBytes;

  LinearWork work;

  struct InputRows {
    Global<const uint8_t> x;
    int stride, rows;
  };
  // A warp's blocks of a chunk. scales: lane i has those of block i.
  struct Batch {
    CodeWords<kCodes> codes[kPanels][kBatch];
    Words<2> inputs[kTiles][kBatch];
    ScaleWords scales[kPanels][kGroups];
    Words<4> info;  // lane kBatch * row + block
  };
  using Panels = Global<const uint8_t>[kPanels];

  DEVICE static int block_of(int chunk, int k) { return chunk * kChunk + warp() * kBatch + k; }

  DEVICE static void load_batch(const WeightShape& w, const Panels& panels, const InputRows& in, int chunk, Batch& to) {
    const int g = lane() / 4, i = lane() % 4;
    UNROLL
    for (int k = 0; k < kBatch; ++k) {
      const int block = block_of(chunk, k);
      if (block >= w.blocks) break;
      UNROLL
      for (int p = 0; p < kPanels; ++p)
        load_codes<kCodes, true>(panels[p] + (w.codes + static_cast<ptrdiff_t>(block) * kCodeBlockBytes<kCodes>),
                                 to.codes[p][k]);
      UNROLL
      for (int t = 0; t < kTiles; ++t) {
        to.inputs[t][k] = {};
        if (8 * t + g < in.rows)
          to.inputs[t][k] =
              load<2>(in.x + (static_cast<ptrdiff_t>(8 * t + g) * in.stride + block * kInt8Block + 8 * i));
      }
    }
    if constexpr (!Format::kWholeRows) {
      if (i < kBatch && block_of(chunk, i) < w.blocks) {
        UNROLL
        for (int p = 0; p < kPanels; ++p)
          load_int8_scales<Format, kForm>(w, panels[p], block_of(chunk, i), to.scales[p]);
      }
      const int row = lane() / kBatch, block = block_of(chunk, lane() % kBatch);
      if (row < in.rows && row < kRows && block < w.blocks)
        to.info =
            load<4>(in.x + (static_cast<ptrdiff_t>(row) * in.stride + w.blocks * kInt8Block + block * kInt8InfoBytes));
    }
  }

  DEVICE static size_t slot_of(int k) { return static_cast<size_t>(k) * kSlotBytes; }

  // Products of a panel with eight rows to shared memory, as far as there are such rows.
  DEVICE static void store_products(size_t slot, int p, int group, int t, int rows, const int32_t (&d)[4]) {
    const int g = lane() / 4, i = lane() % 4;
    const auto to = shared<int32_t>(slot) + ((p * kGroups + group) * kGroupInts + (8 * t + 2 * i) * kPitch + 2 * g);
    UNROLL
    for (int e = 0; e < 2; ++e) {
      if (8 * t + 2 * i + e < rows)
        store(to + e * kPitch, Words<2>{{static_cast<uint32_t>(d[e]), static_cast<uint32_t>(d[2 + e])}});
    }
  }

  // The scales of the warp's blocks to shared memory.
  DEVICE static void store_scales(const WeightShape& w, const InputRows& in, int chunk, const Batch& batch) {
    const int g = lane() / 4, i = lane() % 4;
    if (i < kBatch && block_of(chunk, i) < w.blocks) {
      const auto to = shared<float>(slot_of(warp() * kBatch + i) + kScalesAt);
      UNROLL
      for (int p = 0; p < kPanels; ++p) {
        Int8Scales<Format> scales[2];
        convert_int8_scales<Format, kForm>(w, batch.scales[p], scales);
        UNROLL
        for (int k = 0; k < kScales; ++k)
          store(to + ((p * kScales + k) * kPanel + 2 * g),
                Words<2>{{float_bits(scales[0].v[k]), float_bits(scales[1].v[k])}});
      }
    }
    const int row = lane() / kBatch, k = lane() % kBatch;
    if (row < in.rows && row < kRows && block_of(chunk, k) < w.blocks)
      store(shared<uint8_t>(slot_of(warp() * kBatch + k) + kInputsAt) + kInt8InfoBytes * row, batch.info);
  }

  DEVICE static void multiply_batch(const WeightShape& w, const Int8Numbers& numbers, const InputRows& in, int chunk,
                                    const Batch& batch, int32_t (&sums)[kPanels][kTiles][1][4]) {
    UNROLL
    for (int k = 0; k < kBatch; ++k) {
      if (block_of(chunk, k) >= w.blocks) break;
      UNROLL
      for (int p = 0; p < kPanels; ++p) {
        uint32_t a[4];
        decode_int8<kCodes>(batch.codes[p][k], numbers, a);
        UNROLL
        for (int t = 0; t < kTiles; ++t) {
          if constexpr (Format::kWholeRows) {
            multiply_int8<1>(sums[p][t], a, batch.inputs[t][k]);
          } else {
            int32_t d[kGroups][4];
            clear_products<kGroups>(d);
            multiply_int8<kGroups>(d, a, batch.inputs[t][k]);
            UNROLL
            for (int group = 0; group < kGroups; ++group)
              store_products(slot_of(warp() * kBatch + k), p, group, t, in.rows, d[group]);
          }
        }
      }
    }
    if constexpr (!Format::kWholeRows) store_scales(w, in, chunk, batch);
  }

  // The results of a thread: output n of panel p, of one row of each tile. The two rows of a warp lie in different banks.
  DEVICE static int own_panel() { return thread() / (kThreads / kPanels); }
  DEVICE static int own_output() { return thread() % kPanel; }
  DEVICE static int own_row() { return thread() / kPanel % 2 * 4 + warp() % 4; }

  DEVICE static void add_chunk(const WeightShape& w, const InputRows& in, int chunk, Int8Sum<Format> (&sums)[kTiles]) {
    const int p = own_panel(), n = own_output(), first = chunk * kChunk;
    const int count = w.blocks - first < kChunk ? w.blocks - first : kChunk;
    UNROLL
    for (int t = 0; t < kTiles; ++t) {
      const int row = 8 * t + own_row();
      if (row >= in.rows) continue;
      UNROLL_BY_4
      for (int k = 0; k < count; ++k) {
        const auto products = shared<const int32_t>(slot_of(k)) + (p * kGroups * kGroupInts + row * kPitch + n);
        const auto scales = shared<const float>(slot_of(k) + kScalesAt) + (p * kScales * kPanel + n);
        int32_t d[kGroups];
        UNROLL
        for (int group = 0; group < kGroups; ++group) d[group] = products[group * kGroupInts];
        Int8Scales<Format> own;
        UNROLL
        for (int s = 0; s < kScales; ++s) own.v[s] = scales[s * kPanel];
        const auto info = load_block_info<Format>(shared<const uint8_t>(slot_of(k) + kInputsAt) + kInt8InfoBytes * row);
        sums[t].add(d, own, info, ends_super(first + k, w.blocks));
      }
    }
  }

  // The values of the thread's results.
  DEVICE static void sum_rows(const WeightShape& w, const Panels& panels, const InputRows& in,
                              float (&values)[kTiles]) {
    const Int8Numbers numbers = int8_numbers<kCodes>(w);
    const int chunks = (w.blocks + kChunk - 1) / kChunk;
    Int8Sum<Format> sums[kTiles] = {};
    int32_t whole[kPanels][kTiles][1][4] = {};
    Batch batch{};
    load_batch(w, panels, in, 0, batch);
    ROLLED
    for (int chunk = 0; chunk < chunks; ++chunk) {
      multiply_batch(w, numbers, in, chunk, batch, whole);
      if (chunk + 1 < chunks) load_batch(w, panels, in, chunk + 1, batch);
      if constexpr (!Format::kWholeRows) {
        sync_block();
        add_chunk(w, in, chunk, sums);
        sync_block();
      }
    }
    if constexpr (Format::kWholeRows) {
      UNROLL
      for (int p = 0; p < kPanels; ++p) {
        UNROLL
        for (int t = 0; t < kTiles; ++t) store_products(slot_of(warp()), p, 0, t, in.rows, whole[p][t][0]);
      }
      sync_block();
    }
    UNROLL
    for (int t = 0; t < kTiles; ++t) {
      const int row = 8 * t + own_row();
      values[t] = 0;
      if (row >= in.rows) continue;
      if constexpr (Format::kWholeRows) {
        int32_t dot = 0;
        UNROLL
        for (int k = 0; k < kWarps; ++k)
          dot += shared<const int32_t>(slot_of(k))[own_panel() * kGroupInts + row * kPitch + own_output()];
        values[t] =
            finish_int8_row(w, panels[own_panel()], own_output(), in.x + static_cast<ptrdiff_t>(row) * in.stride, dot);
      } else {
        values[t] = sums[t].value();
      }
    }
  }

  // Rows [row, row + kRows) of the part, as far as there are so many. panel: the first.
  DEVICE void multiply_rows(const LinearMatrix& m, const LinearPart& part, int panel, int row) const {
    const bool gated = part.up != nullptr;
    const int rows = part.rows - row < kRows ? part.rows - row : kRows;
    const InputRows in{part.x + static_cast<ptrdiff_t>(row) * work.x.stride, work.x.stride, rows};
    Panels panels;
    UNROLL
    for (int p = 0; p < kPanels; ++p) {
      const int own = gated || panel + p >= panels_of(m.w) ? panel : panel + p;  // one that exists
      panels[p] = (gated && p > 0 ? part.up : part.data) + static_cast<ptrdiff_t>(own) * m.w.panel_bytes;
    }
    float values[kTiles];
    sum_rows(m.w, panels, in, values);
    sync_block();                           // the sums have been read
    const auto results = shared<float>(0);  // [kPanels][kRows][kPitch]
    UNROLL
    for (int t = 0; t < kTiles; ++t)
      results[own_panel() * kGroupInts + (8 * t + own_row()) * kPitch + own_output()] = values[t];
    sync_block();
    const int fours = gated ? kPanel / 4 : kPanels * kPanel / 4;
    for (int k = thread(); k < rows * fours; k += kThreads) {
      const int r = k / fours, n = k % fours;
      const auto four = [&](int p, float(&to)[4]) {
        const Words<4> words = load<4>(results + (p * kGroupInts + r * kPitch + 4 * (n % 4)));
        UNROLL
        for (int j = 0; j < 4; ++j) to[j] = bits_float(words.w[j]);
      };
      float first[4], ups[4] = {};
      four(gated ? 0 : n / 4, first);
      if (gated) four(1, ups);
      finish_outputs(m, part, row + r, panel * kPanel + 4 * n, 4, first, ups);
    }
    sync_block();  // the results have been read
  }

  // What no launch writes, as far as it is known which matrix it is: the codes of the first chunks.
  DEVICE void prefetch_codes(const LinearMatrix& m, int panel) const {
    if (work.parts.matrices != nullptr) return;
    constexpr int kLine = 128, kMost = 8 << 10;
    const int bytes = m.w.blocks * kCodeBlockBytes<kCodes>;
    UNROLL
    for (int p = 0; p < kPanels; ++p) {
      const int own = work.gated != 0 || panel + p >= panels_of(m.w) ? panel : panel + p;
      const auto at = (work.gated != 0 && p > 0 ? m.up : m.data) + static_cast<ptrdiff_t>(own) * m.w.panel_bytes;
      for (int k = kLine * thread(); k < bytes && k < kWarps * kMost; k += kLine * kThreads)
        prefetch(at + (m.w.codes + k));
    }
  }

  DEVICE void operator()() const {
    int together = kPanels;
    if (work.gated != 0) together = 1;
    int panel = block_x() * together;
    const LinearMatrix& m = find_matrix(work, panel, together);
    prefetch_codes(m, panel);
    wait_previous();
    const LinearPart part = find_part(work, m);
    for (int row = block_y() * kRows; row < part.rows; row += blocks_y() * kRows) multiply_rows(m, part, panel, row);
  }
};

}  // namespace quire::cuda
