// launch_int8(), for the files that instantiate it.
#pragma once

#include <cassert>

#include "cuda/kernels/int8/linear_rows.h"
#include "cuda/kernels/int8/linear_tiles.h"
#include "cuda/linear/linear_int8.h"

namespace quire::cuda {

template <class Format, ScaleForm kForm, int kTiles>
void launch_int8_rows(Stream& stream, const LinearLaunch& launch) {
  using Kernel = Int8LinearOfRows<Format, kForm, kTiles>;
  stream.launch({.x = panel_tiles(launch.work, launch.work.gated != 0 ? 1 : Kernel::kPanels),
                 .y = (launch.usual_rows + Kernel::kRows - 1) / Kernel::kRows,
                 .z = launch.parts,
                 .threads = Kernel::kThreads,
                 .shared_bytes = Kernel::kSharedBytes},
                Kernel{launch.work});
}

template <class Kernel>
void launch_int8_tiles(Stream& stream, const LinearLaunch& launch) {
  stream.launch({.x = panel_tiles(launch.work, launch.work.gated != 0 ? Kernel::kPanels / 2 : Kernel::kPanels),
                 .y = (launch.usual_rows + Kernel::kRows - 1) / Kernel::kRows,
                 .z = launch.parts,
                 .threads = Kernel::kThreads,
                 .shared_bytes = Kernel::kSharedBytes},
                Kernel{launch.work});
}

// More rows are multiplied in tiles. (An estimate: not measured on hardware yet.)
inline constexpr int kMostInt8Rows = 32;

template <class Format, ScaleForm kForm>
void launch_int8_format(Stream& stream, const LinearLaunch& launch) {
  const bool few = launch.usual_rows <= kMostInt8Rows;
  const bool rows = launch.variant.kernel == LinearKernel::kUsual ? few : launch.variant.kernel == LinearKernel::kRows;
  if (rows && launch.usual_rows <= 8) return launch_int8_rows<Format, kForm, 1>(stream, launch);
  if (rows) return launch_int8_rows<Format, kForm, 2>(stream, launch);
  // Each sum of a result takes 8 kTiles registers: with minima there are two, with two levels twice as many.
  if constexpr (!Format::kMinima && !Format::kHalves) {
    if (launch.usual_rows > 64) return launch_int8_tiles<Int8LinearOfTiles<Format, kForm, 8>>(stream, launch);
  }
  launch_int8_tiles<Int8LinearOfTiles<Format, kForm, 4>>(stream, launch);
}

template <Codes kCodes, bool kHalves, bool kMinima>
void launch_int8_groups(Stream& stream, const LinearLaunch& launch) {
  const WeightShape& w = launch.work.matrices[0].w;
  if constexpr (kHalves) {
    // Of those with two levels, only Q2_K has minima.
    if constexpr (!kMinima || kCodes == Codes::kU2) {
      if (w.scale == ScaleKind::kSuper)
        return launch_int8_format<Int8Format<kCodes, true, kMinima, true>, ScaleForm::kAny>(stream, launch);
    }
    assert(w.scale != ScaleKind::kSuper);
  } else if constexpr (kCanBeHalf<kCodes, false>) {
    if (scale_form(w) == ScaleForm::kHalf)
      return launch_int8_format<Int8Format<kCodes, false, kMinima, false>, ScaleForm::kHalf>(stream, launch);
  }
  if constexpr (kCodes != Codes::kU6)
    launch_int8_format<Int8Format<kCodes, kHalves, kMinima, false>, ScaleForm::kAny>(stream, launch);
}

template <Codes kCodes>
void launch_int8(Stream& stream, const LinearLaunch& launch) {
  if constexpr (kCodes == Codes::kI8) {
    if (launch.form == Activations::kInt8Row)
      return launch_int8_format<Int8Format<Codes::kI8, false, false, false, true>, ScaleForm::kAny>(stream, launch);
  }
  // As launch_linear().
  constexpr bool kHalvesExist = kCodes != Codes::kU5, kWholeExist = kCodes != Codes::kU6;
  constexpr bool kMinimaExist = kCodes <= Codes::kU5 || kCodes == Codes::kI8;
  const WeightShape& w = launch.work.matrices[0].w;
  const bool minima = w.zeros != ZeroKind::kConstant;
  assert((w.halves ? kHalvesExist : kWholeExist) && (!minima || kMinimaExist));
  const auto of_groups = [&]<bool kHalves>() {
    if constexpr (kMinimaExist) {
      if (minima) return launch_int8_groups<kCodes, kHalves, true>(stream, launch);
    }
    launch_int8_groups<kCodes, kHalves, false>(stream, launch);
  };
  if constexpr (kHalvesExist) {
    if (w.halves) return of_groups.template operator()<true>();
  }
  if constexpr (kWholeExist) of_groups.template operator()<false>();
}

}  // namespace quire::cuda
