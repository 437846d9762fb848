// Linears over packed weights, for the instruction set of the including file. Sums are taken in the order of
// reference.cc.
#pragma once

#include <array>
#include <type_traits>

#include "kernels/denormals.h"
#include "kernels/vector/functions.h"
#include "kernels/vector/linear_float.inc.h"
#include "kernels/vector/linear_int8.inc.h"
#include "kernels/vector/linear_int8_row.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// out [kMostPanelsAtOnce][kTileRows][kPanel] = panels p .. p + panels - 1 times `rows` <= kTileRows rows of inputs, without
// the outliers of kInt8x2.
using Product = void (*)(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows,
                         const LinearLoop& loop, float* out);

// Calls run.operator()<codes, group>() for a format's codes and the groups that kernels tell apart: of 16 inputs, of
// whole blocks (kBlockInputs), or none (0).
template <class Run>
QUIRE_INLINE auto with_format(const PanelFormat& f, const Run& run) {
  switch (f.codes) {
    case Codes::kU2:
      return f.group == 16 ? run.template operator()<Codes::kU2, 16>() : run.template operator()<Codes::kU2, 32>();
    case Codes::kU3:
      return f.group == 16 ? run.template operator()<Codes::kU3, 16>() : run.template operator()<Codes::kU3, 32>();
    case Codes::kU4:
      return f.group == 16 ? run.template operator()<Codes::kU4, 16>() : run.template operator()<Codes::kU4, 32>();
    case Codes::kU5:
      return run.template operator()<Codes::kU5, 32>();
    case Codes::kU6:
      return run.template operator()<Codes::kU6, 16>();
    case Codes::kI8:
      return f.group == 16 ? run.template operator()<Codes::kI8, 16>() : run.template operator()<Codes::kI8, 32>();
    case Codes::kTable4:
      return f.group == 16 ? run.template operator()<Codes::kTable4, 16>()
                           : run.template operator()<Codes::kTable4, 32>();
    case Codes::kFloat4:
      return f.group == 16 ? run.template operator()<Codes::kFloat4, 16>()
                           : run.template operator()<Codes::kFloat4, 32>();
    case Codes::kE4M3:
      return f.group == 16 ? run.template operator()<Codes::kE4M3, 16>() : run.template operator()<Codes::kE4M3, 32>();
    case Codes::kBf16:
      return run.template operator()<Codes::kBf16, 0>();
    case Codes::kF16:
      return run.template operator()<Codes::kF16, 0>();
    case Codes::kF32:
      break;
  }
  return run.template operator()<Codes::kF32, 0>();
}

// The products that a set computes itself. Sets that extend another one leave the rest to it: the same code twice would
// cost a minute to compile, and a megabyte.
enum class Products : uint8_t { kAll, kInt8, kBf16 };
constexpr bool includes(Products own, Activations a) {
  if (own == Products::kAll) return true;
  return (own == Products::kBf16) == (a == Activations::kBf16) && a != Activations::kF32;
}

template <Products kOwn>
Product find_product(const PanelFormat& format, Activations activations) {
  constexpr bool kInt8 = includes(kOwn, Activations::kInt8), kFloats = includes(kOwn, Activations::kBf16);
  if constexpr (kInt8) {
    if (activations == Activations::kInt8Row) return int8_row_panels;
  }
  return with_format(format, [&]<Codes kCodes, int kGroup>() -> Product {
    if constexpr (kGroup != 0) {
      if constexpr (kInt8 && has_integer_codes(kCodes)) {
        if (has_int8_blocks(activations)) {
          constexpr bool kTwoLevelsExist = kGroup == 16 && (kCodes == Codes::kU2 || kCodes == Codes::kU3 ||
                                                            kCodes == Codes::kU6 || kCodes == Codes::kTable4);
          if constexpr (kTwoLevelsExist) {
            if (has_two_levels(format)) return int8_panels<kCodes, kGroup, kCodes == Codes::kU2, true>;
          }
          constexpr bool kMinimaExist = kCodes != Codes::kU6 && kCodes != Codes::kTable4;
          return kMinimaExist && has_minima(format) ? int8_panels<kCodes, kGroup, kMinimaExist>
                                                    : int8_panels<kCodes, kGroup, false>;
        }
      }
      if constexpr (kFloats) {
        if (activations == Activations::kBf16) return float_panels<Pairs, kCodes, kGroup>;
      }
    } else if constexpr (kFloats && kBf16Pairs) {
      if (activations == Activations::kBf16)
        return float_panels<std::conditional_t<kCodes == Codes::kBf16, Pairs, SinglesOfPairs>, kCodes, 0>;
    }
    if constexpr (kOwn == Products::kAll || (kFloats && !kBf16Pairs)) return float_panels<Singles, kCodes, 0>;
    return nullptr;
  });
}

// The rest of a linear for one panel: bias, nonlinearity, gate, scale, residual.
using Finish = void (*)(const LinearArgs& a, int p, int row_begin, int rows, const float* out, const float* up);
template <Nonlinearity kF>
void finish_panel(const LinearArgs& a, int p, int row_begin, int rows, const float* out, const float* up) {
  const int n = p * kPanel, left = a.weights->rows - n;
  const auto of_panel = [&](const float* all) __attribute__((always_inline)) {
    if (!all) return Floats16::all(0.0f);
    return left >= kPanel ? Floats16::load(all + n) : load_part(all + n, left);
  };
  const Floats16 bias = of_panel(a.bias), up_bias = of_panel(a.up_bias);
  for (int r = 0; r < rows; ++r) {
    Floats16 value = Floats16::load(out + r * kPanel);
    if (a.bias) value = add(value, bias);
    if (up) {
      Floats16 factor = Floats16::load(up + r * kPanel);
      if (a.up_bias) factor = add(factor, up_bias);
      value = gated<kF>(value, factor, a.alpha, a.limit);
    } else {
      value = nonlinear<kF>(value);
    }
    if (a.scale != 1.0f) value = mul(value, Floats16::all(a.scale));
    float* y = a.y + static_cast<size_t>(row_begin + r) * a.y_stride + n;
    if (left >= kPanel) {
      store(y, a.accumulate ? add(Floats16::load(y), value) : value);
    } else {
      alignas(64) float last[kPanel];
      store(last, value);
      for (int i = 0; i < left; ++i) y[i] = a.accumulate ? y[i] + last[i] : last[i];
    }
  }
}
Finish find_finish(Nonlinearity f) {
  Finish found = nullptr;
  with_nonlinearity(
      f, [&]<Nonlinearity kF>() __attribute__((always_inline)) { found = finish_panel<kF>; });
  return found;
}

// Prefetches the lines that finish_panel() will write: with many rows, they are in memory or a far cache.
void prefetch_outputs(const LinearArgs& a, int p, int panels, int row_begin, int rows) {
  for (int r = 0; r < rows; ++r) {
    const float* y = a.y + static_cast<size_t>(row_begin + r) * a.y_stride + p * kPanel;
    for (int i = 0; i < panels; ++i) __builtin_prefetch(y + i * kPanel, 1);
  }
}

// Prefetch distances in bytes: each was best on some machine.
constexpr uint16_t kDistances[] = {8192, 4096, 2048, 16384};

template <class Loops>
LinearLoop first_loop(const Loops& loops_for, const LinearArgs& a, int rows) {
  std::array<LinearLoop, kMostLinearLoops> loops;
  loops_for(*a.weights, a.activations, rows, loops);
  return loops[0];
}

size_t linear_loops(const PackedMatrix& m, Activations activations, int rows,
                    std::span<LinearLoop, kMostLinearLoops> loops) {
  using Kind = LinearLoop::Kind;
  const bool int8 = has_int8_blocks(activations),
             floats = activations == Activations::kBf16 || (activations == Activations::kF32 && !has_scales(m.format));
  const int few = int8 ? kFewestBeside - 1 : kFewFloatRows;
  size_t count = 0;
  const auto add = [&](const LinearLoop& loop) { loops[count++] = loop; };
  const auto add_streams = [&] {
    const int most = int8 ? kPanelsBeside : most_streams(m.format.codes, m.format.group);
    for (const uint16_t ahead : kDistances) {
      if (rows > few && ahead != kDistances[0]) break;  // only a single pass prefetches at a distance
      for (int panels = 1; panels <= most; panels *= 2)
        add({.kind = Kind::kStream, .panels = static_cast<uint8_t>(panels), .ahead = ahead});
    }
  };
  if ((int8 || floats) && rows <= few) add_streams();
  add({.kind = Kind::kShared, .panels = static_cast<uint8_t>(kFloatPanels)});
  if ((int8 || floats) && rows > few && rows <= 2 * few) add_streams();
  return count;
}

// A panel group after the other: products of up to kTileRows rows, whose inputs are at x, and what follows them.
// outliers: only with kInt8x2.
void run_panels(const LinearArgs& a, const LinearLoop& loop, Product product, Product up_product, const std::byte* x,
                int panel_begin, int panel_end, int row, int rows, const TileOutliers* outliers = nullptr) {
  const Finish finish = find_finish(a.nonlinearity);
  constexpr int kPanelFloats = kTileRows * kPanel;
  alignas(64) float out[kMostPanelsAtOnce * kPanelFloats], up[kMostPanelsAtOnce * kPanelFloats];
  for (int p = panel_begin; p < panel_end; p += loop.panels) {
    const int panels = panel_end - p < loop.panels ? panel_end - p : loop.panels;
    prefetch_outputs(a, p, panels, row, rows);
    const auto multiply = [&](Product of, const PackedMatrix& m, float* to) {
      of(m, p, panels, x, a.x_stride, rows, loop, to);
      if (outliers) outliers->add_products(m, p, panels, kPanelFloats, to);
    };
    multiply(product, *a.weights, out);
    if (up_product) multiply(up_product, *a.up, up);
    for (int i = 0; i < panels; ++i)
      finish(a, p + i, row, rows, out + i * kPanelFloats, up_product ? up + i * kPanelFloats : nullptr);
  }
}

template <Products kOwn = Products::kAll>
void linear(const LinearArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  const FlushDenormals flush(a.activations == Activations::kBf16);
  const Product product = find_product<kOwn>(a.weights->format, a.activations);
  const Product up_product = a.up ? find_product<kOwn>(a.up->format, a.activations) : nullptr;
  const LinearLoop loop = a.loop ? *a.loop : first_loop(linear_loops, a, row_end - row_begin);
  const auto run = [&](int row, int rows, const TileOutliers* outliers) {
    run_panels(a, loop, product, up_product, a.x + static_cast<size_t>(row) * a.x_stride, panel_begin, panel_end, row,
               rows, outliers);
  };
  const auto tile = [row_end](int row) { return row_end - row < kTileRows ? row_end - row : kTileRows; };
  if constexpr (includes(kOwn, Activations::kInt8x2)) {
    if (a.activations == Activations::kInt8x2) {
      TileOutliers outliers;
      for (int row = row_begin, rows = 0; row < row_end; row += rows) {
        rows = outliers.fill(a.x + static_cast<size_t>(row) * a.x_stride, a.x_stride, a.weights->cols, tile(row));
        run(row, rows, &outliers);
      }
      return;
    }
  }
  for (int row = row_begin; row < row_end; row += kTileRows) run(row, tile(row), nullptr);
}

}  // namespace
}  // namespace quire::QUIRE_ISA
