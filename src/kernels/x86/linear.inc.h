// Linears over packed weights, for the instruction set of the including file. Sums are taken in the order of
// reference.cc.
#pragma once

#include <type_traits>

#include "kernels/denormals.h"
#include "kernels/x86/functions.h"
#include "kernels/x86/linear_float.inc.h"
#include "kernels/x86/linear_int8.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// out [kFloatPanels][kTileRows][kPanel] = panels p .. p + panels - 1 times `rows` <= kTileRows rows of inputs.
using Product = void (*)(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows,
                         float* out);

template <TensorType kType>
Product product_of(Activations activations) {
  if constexpr (is_quantized(kType)) {
    if (activations == Activations::kInt8) return int8_panels<kType>;
    if (activations == Activations::kBf16) return float_panels<Pairs, kType, false>;
  } else if constexpr (kBf16Pairs) {
    if (activations == Activations::kBf16)
      return float_panels<std::conditional_t<kType == TensorType::BF16, Pairs, SinglesOfPairs>, kType, true>;
  }
  return float_panels<Singles, kType, true>;
}
Product find_product(TensorType type, Activations activations) {
  switch (type) {
    case TensorType::Q4_0:
      return product_of<TensorType::Q4_0>(activations);
    case TensorType::Q4_1:
      return product_of<TensorType::Q4_1>(activations);
    case TensorType::Q5_0:
      return product_of<TensorType::Q5_0>(activations);
    case TensorType::Q5_1:
      return product_of<TensorType::Q5_1>(activations);
    case TensorType::Q8_0:
      return product_of<TensorType::Q8_0>(activations);
    case TensorType::Q4_K:
      return product_of<TensorType::Q4_K>(activations);
    case TensorType::Q5_K:
      return product_of<TensorType::Q5_K>(activations);
    case TensorType::Q6_K:
      return product_of<TensorType::Q6_K>(activations);
    case TensorType::F16:
      return product_of<TensorType::F16>(activations);
    case TensorType::BF16:
      return product_of<TensorType::BF16>(activations);
    default:
      return product_of<TensorType::F32>(activations);
  }
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

void linear(const LinearArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  const FlushDenormals flush(a.activations == Activations::kBf16);
  const Product product = find_product(a.weights->type, a.activations);
  const Finish finish = find_finish(a.nonlinearity);
  const Product up_product = a.up ? find_product(a.up->type, a.activations) : nullptr;
  alignas(64) float out[kFloatPanels * kTileRows * kPanel], up[kFloatPanels * kTileRows * kPanel];
  for (int row = row_begin; row < row_end; row += kTileRows) {
    const int rows = row_end - row < kTileRows ? row_end - row : kTileRows;
    const std::byte* x = a.x + static_cast<size_t>(row) * a.x_stride;
    for (int p = panel_begin; p < panel_end; p += kFloatPanels) {
      const int panels = panel_end - p < kFloatPanels ? panel_end - p : kFloatPanels;
      prefetch_outputs(a, p, panels, row, rows);
      product(*a.weights, p, panels, x, a.x_stride, rows, out);
      if (up_product) up_product(*a.up, p, panels, x, a.x_stride, rows, up);
      for (int i = 0; i < panels; ++i) {
        finish(a, p + i, row, rows, out + i * kTileRows * kPanel, up_product ? up + i * kTileRows * kPanel : nullptr);
      }
    }
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
