// The kernels of an instruction set over vectors. Sets with more instructions replace some of them, and leave functions of
// the files that they include unused.
#pragma once

#include "kernels/kernels.h"
#include "kernels/rotate_store.inc.h"
#include "kernels/x86/attention.inc.h"
#include "kernels/x86/linear.inc.h"
#include "kernels/x86/peak.inc.h"
#include "kernels/x86/quantize.inc.h"
#include "kernels/x86/recurrent.inc.h"
#include "kernels/x86/rows.inc.h"

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
