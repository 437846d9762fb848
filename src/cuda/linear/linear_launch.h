// Launches of linears by kind of codes. They are instantiated in files of their own, because each takes seconds to compile.
#pragma once

#include <cstdint>

#include "cuda/kernels/linear.h"
#include "cuda/linear/inputs.h"
#include "cuda/linear/linear_variant.h"
#include "cuda/stream.h"
#include "kernels/packed.h"
#include "kernels/types.h"

namespace quire::cuda {

struct LinearLaunch {
  const LinearWork& work;
  Activations form;  // of the inputs
  // Of a part. There may be more: a block goes on with the next rows.
  int usual_rows;
  int parts;  // that can have rows
  LinearVariant variant = {};
  // Of work.x, if it is not prepared yet and the variant prepares it; else nullptr.
  LateInputs* late = nullptr;
};

// Tiles of so many panels, of which each has panels of one matrix, that cover all matrices.
inline int panel_tiles(const LinearWork& work, int panels) {
  int tiles = 0;
  for (int k = 0; k < work.count; ++k) tiles += ((work.matrices[k].w.rows + kPanel - 1) / kPanel + panels - 1) / panels;
  return tiles;
}

// The form of a matrix's scales, of those that kernels are compiled for.
inline ScaleForm scale_form(const WeightShape& w) {
  const bool plain = w.zeros == ZeroKind::kConstant;
  if (w.scale == ScaleKind::kF16 && w.group_blocks == 1 && !w.halves && (plain || w.zeros == ZeroKind::kF16))
    return ScaleForm::kHalf;
  if (w.scale == ScaleKind::kSuper && w.group_blocks == 1 && (plain || w.zeros == ZeroKind::kSuper))
    return ScaleForm::kSuper;
  return ScaleForm::kAny;
}
// Of weights with these codes, the form that is frequent.
template <Codes kCodes, bool kHalves>
inline constexpr bool kCanBeHalf = kHasScales<kCodes> && !kHalves && kCodes != Codes::kFloat4 && kCodes != Codes::kE4M3;
template <Codes kCodes, bool kHalves>
inline constexpr bool kCanBeSuper = kHalves ? kCodes == Codes::kU6 : kCodes == Codes::kU4 || kCodes == Codes::kU5;

// Calls run.operator()<codes>().
template <class Run>
void with_codes(Codes codes, const Run& run) {
  switch (codes) {
    case Codes::kU2:
      return run.template operator()<Codes::kU2>();
    case Codes::kU3:
      return run.template operator()<Codes::kU3>();
    case Codes::kU4:
      return run.template operator()<Codes::kU4>();
    case Codes::kU5:
      return run.template operator()<Codes::kU5>();
    case Codes::kU6:
      return run.template operator()<Codes::kU6>();
    case Codes::kI8:
      return run.template operator()<Codes::kI8>();
    case Codes::kTable4:
      return run.template operator()<Codes::kTable4>();
    case Codes::kFloat4:
      return run.template operator()<Codes::kFloat4>();
    case Codes::kE4M3:
      return run.template operator()<Codes::kE4M3>();
    case Codes::kBf16:
      return run.template operator()<Codes::kBf16>();
    case Codes::kF16:
      return run.template operator()<Codes::kF16>();
    case Codes::kF32:
      return run.template operator()<Codes::kF32>();
  }
}

// The fastest kernel for so many rows of bf16 or float32; all have the same bits. kCodes: that of all matrices.
template <Codes kCodes>
void launch_linear(Stream& stream, const LinearLaunch& launch);

}  // namespace quire::cuda
