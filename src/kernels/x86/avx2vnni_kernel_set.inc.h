// The kernels of a set with AVX-VNNI but without AVX-512: those of AVX2, except for products of int8 inputs.
#pragma once

#include "kernels/vector/linear.inc.h"
#include "kernels/vector/peak.inc.h"

namespace quire::QUIRE_ISA {
namespace {

void int8_linear(const LinearArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  const auto of_set = includes(Products::kInt8, a.activations) ? linear<Products::kInt8> : avx2_kernels()->linear;
  of_set(a, panel_begin, panel_end, row_begin, row_end);
}

KernelSet vnni_kernels(std::string_view name) {
  KernelSet kernels = *avx2_kernels();
  kernels.name = name;
  kernels.linear = int8_linear;
  kernels.linear_loops = linear_loops;
  kernels.peak = peak;
  return kernels;
}

}  // namespace
}  // namespace quire::QUIRE_ISA
