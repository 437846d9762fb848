// The kernels of an instruction set over vectors. Sets with more instructions replace some of them, and leave functions of
// the files that they include unused.
//
// Which file includes which (docs/kernels.md says what to read first). The texts are in this folder; each set's .cc file
// defines QUIRE_ISA and includes them:
//
//   avx2.cc, avx512.cc       kernel_set.inc.h
//   avx2vnni.cc              avx2vnni_kernel_set (x86) ─▶ linear, peak
//   avx512bf16.cc            linear, peak, quantize, avx512bf16_attention (x86) ─▶ attention
//   amx.cc                   amx_linear (x86) ─▶ … ─▶ linear, quantize; amx_attention (x86) ─▶ … ─▶ attention
//
//   kernel_set ─┬─▶ attention ─▶ attention_chunk, head_rotation
//               ├─▶ linear ─┬─▶ linear_int8 ─────▶ int8_tile ─┬─▶ panel_source   codes of a panel
//               │           ├─▶ linear_int8_row ─┬▶ int8_tile └─▶ scales         scales and minima of a panel
//               │           │                    └▶ outliers ─▶ scales
//               │           └─▶ linear_float ─▶ panel_source, scales
//               ├─▶ peak ─▶ linear_float
//               ├─▶ quantize ─┐
//               ├─▶ recurrent ┴▶ rows ─▶ functions.h             exp and the nonlinear functions
//               └─▶ rotate_store ─▶ kv_codes (kernels/), head_rotation
//
// All of them end at alphabet.h, which includes the operations of the instruction set (kernels/x86/vector.h, codes.h).
#pragma once

#include "kernels/kernels.h"
#include "kernels/vector/head_rotation.inc.h"

#include "kernels/rotate_store.inc.h"  // after rotate_head()
#include "kernels/vector/attention.inc.h"
#include "kernels/vector/linear.inc.h"
#include "kernels/vector/peak.inc.h"
#include "kernels/vector/quantize.inc.h"
#include "kernels/vector/recurrent.inc.h"
#include "kernels/vector/rows.inc.h"

namespace quire::QUIRE_ISA {
namespace {

constexpr KernelSet vector_kernels(std::string_view name) {
  return {.name = name,
          .quantize = quantize,
          .linear = linear<>,
          .linear_loops = linear_loops,
          .normalize = normalize,
          .multiply_gate = multiply_gate,
          .softplus = softplus,
          .soft_cap = soft_cap,
          .softmax = softmax,
          .sigmoid = sigmoid,
          .rotate = rotate,
          .prefetch_kv = prefetch_kv,
          .store_kv = store_kv,
          .attention = attention,
          .merge = merge,
          .short_conv = short_conv,
          .gated_delta = gated_delta,
          .mamba2 = mamba2,
          .peak = peak,
          .linear_panels = kFloatPanels};
}

}  // namespace
}  // namespace quire::QUIRE_ISA
