// Products of panels with int8 activations of one scale a row (Activations::kInt8Row).
#pragma once

#include "base/half.h"
#include "kernels/vector/int8_tile.inc.h"
#include "kernels/vector/outliers.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// Rows of one scale: half h of kPanels panels times kRows rows, to out [kPanels][kTileRows][kPanel].
template <int kRows, int kPanels>
QUIRE_INLINE void int8_row_tile(const PackedCodes<Codes::kI8>* sources, const ScaleMemory* scales, int h, int blocks,
                                const std::byte* x, size_t x_stride, float* out, Prefetch<>& prefetch) {
  const Int8RowBlock* rows[kRows];
  Sums sums[kRows][kPanels];
  QUIRE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    rows[r] = reinterpret_cast<const Int8RowBlock*>(x + static_cast<size_t>(r) * x_stride);
    int32_t total = 0;
    if (sources[0].zero() != 0) {
      for (int b = 0; b < blocks; ++b) total += rows[r][b].sum;
    }
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) sums[r][p] = sums_from(Ints::all(-sources[0].zero() * total));
  }
  for (int b = 0; b < blocks; ++b) {
    prefetch.next();
    add_line<0>(sources, b, h, rows, sums), add_line<1>(sources, b, h, rows, sums);
    add_line<2>(sources, b, h, rows, sums), add_line<3>(sources, b, h, rows, sums);
    QUIRE_UNROLL
    for (const Int8RowBlock*& at : rows) ++at;
  }
  for (int p = 0; p < kPanels; ++p) {
    const Floats scale = Floats::load(scales[p] + h * kWidth);
    for (int r = 0; r < kRows; ++r) {
      float* to = out + p * kTileRows * kPanel + r * kPanel + h * kWidth;
      const float of_row = rows[r][-1].scale;  // every block has it
      store(to, mul(Floats::of(sums[r][p].wide), mul(scale, Floats::all(of_row))));
    }
  }
}

// Adds the outliers of `rows` rows to the outputs of panel p.
QUIRE_INLINE void add_outliers(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, int rows,
                               float* out) {
  for (int r = 0; r < rows; ++r, out += kPanel) {
    const auto* row = reinterpret_cast<const Int8RowBlock*>(x + static_cast<size_t>(r) * x_stride);
    for (int b = 0; b < m.blocks(); ++b) {
      if (row[b].outliers == 0) continue;
      uint32_t inputs[kBlockInputs];
      int count = 0;
      for (uint32_t left = row[b].outliers; left != 0; left &= left - 1)
        inputs[count++] = static_cast<uint32_t>(b * kBlockInputs + __builtin_ctz(left));
      alignas(64) float weights[kBlockInputs * kColumnFloats];
      decode_columns<1>(m, p, inputs, count, weights);
      for (int h = 0; h < kHalves; ++h) {
        Floats sum = Floats::load(out + h * kWidth);
        for (int i = 0; i < count; ++i) {
          const float input = f16_to_f32(row[b].x[inputs[i] % kBlockInputs]);
          sum = fma(Floats::all(input), Floats::load(weights + i * kColumnFloats + h * kWidth), sum);
        }
        store(out + h * kWidth, sum);
      }
    }
  }
}

void int8_row_panels(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows,
                     const LinearLoop& loop, float* out) {
  using From = PackedCodes<Codes::kI8>;
  alignas(64) ScaleMemory scales[kMostPanelsAtOnce];
  for (int i = 0; i < panels; ++i) decode_scales(m, p + i, 0, 1, scales[i]);
  const auto run = [&]<int kPanels, int kMostRows>(int first) __attribute__((always_inline)) {
    const From from[] = {{m, p + first, 0}, {m, p + first + kPanels - 1, 0}};
    const int tiles = (rows + kMostRows - 1) / kMostRows, calls = m.blocks() * tiles * kHalves;
    Prefetch<> prefetch = calls == m.blocks() && kPanels == 1 ? Prefetch<>::ahead(m, p + first, calls, loop.ahead)
                                                              : Prefetch<>::next_panels(m, p + first, kPanels, calls);
    for (int i = 0; i < tiles; ++i) {
      const int row = rows * i / tiles, count = rows * (i + 1) / tiles - row;
      with_count<kMostRows>(count, [&]<int kRows>() {
        for (int h = 0; h < kHalves; ++h)
          int8_row_tile<kRows, kPanels>(from, scales + first, h, m.blocks(), x + static_cast<size_t>(row) * x_stride,
                                        x_stride, out + first * kTileRows * kPanel + row * kPanel, prefetch);
      });
    }
  };
  if (panels == kPanelsBeside && rows >= kFewestBeside) {
    run.template operator()<kPanelsBeside, kRowsBeside<false>>(0);
  } else {
    for (int i = 0; i < panels; ++i) run.template operator()<1, kMostInt8Rows>(i);
  }
  for (int i = 0; i < panels; ++i) add_outliers(m, p + i, x, x_stride, rows, out + i * kTileRows * kPanel);
}

}  // namespace
}  // namespace quire::QUIRE_ISA
