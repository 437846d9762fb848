// launch_many_rows(), for the files that instantiate it.
#pragma once

#include "cuda/kernels/many_rows/linear_in_clusters.h"
#include "cuda/kernels/many_rows/linear_of_bf16_rows.h"
#include "cuda/kernels/many_rows/linear_of_many_rows.h"
#include "cuda/linear/linear_many_rows.h"
#include "cuda/linear/many_rows/launch_tiles.h"

namespace quire::cuda {

template <Codes kCodes, bool kHalves, ScaleForm kForm>
void launch_tiles_of_codes(Stream& stream, const LinearLaunch& launch) {
  if (launch.work.parts.matrices != nullptr)
    return launch_tiles_of_parts<LinearOfManyRows<kCodes, kHalves, kForm, true>>(stream, launch);
  launch_tiles_of_rows<LinearOfManyRows<kCodes, kHalves, kForm>>(stream, launch);
}

template <Codes kCodes, bool kHalves>
void launch_tiles_of_form(Stream& stream, const LinearLaunch& launch) {
  const ScaleForm form = scale_form(launch.work.matrices[0].w);
  if constexpr (kCanBeHalf<kCodes, kHalves>) {
    if (form == ScaleForm::kHalf) return launch_tiles_of_codes<kCodes, kHalves, ScaleForm::kHalf>(stream, launch);
  }
  if constexpr (kCanBeSuper<kCodes, kHalves>) {
    if (form == ScaleForm::kSuper) return launch_tiles_of_codes<kCodes, kHalves, ScaleForm::kSuper>(stream, launch);
  }
  launch_tiles_of_codes<kCodes, kHalves, ScaleForm::kAny>(stream, launch);
}

template <Codes kCodes>
void launch_many_rows(Stream& stream, const LinearLaunch& launch) {
  if constexpr (kCodes == Codes::kBf16) {
    const int columns = launch.variant.columns > 0 ? launch.variant.columns : launch.usual_rows <= 64 ? 64 : 128;
    if (launch.work.parts.matrices != nullptr) {
      if (columns == 64) return launch_tiles_of_parts<LinearOfBf16Rows<64, true>>(stream, launch);
      return launch_tiles_of_parts<LinearOfBf16Rows<128, true>>(stream, launch);
    }
    if (const int cluster = launch.variant.cluster; cluster > 0) {
      if (columns == 128 && cluster == 2) return launch_tiles_of_rows<LinearInClusters<128, 2>>(stream, launch);
      if (columns == 128) return launch_tiles_of_rows<LinearInClusters<128, 4>>(stream, launch);
      if (cluster == 2) return launch_tiles_of_rows<LinearInClusters<256, 2>>(stream, launch);
      return launch_tiles_of_rows<LinearInClusters<256, 4>>(stream, launch);
    }
    if (columns == 64) return launch_tiles_of_rows<LinearOfBf16Rows<64>>(stream, launch);
    if (columns == 128) return launch_tiles_of_rows<LinearOfBf16Rows<128>>(stream, launch);
    launch_tiles_of_rows<LinearOfBf16Rows<256>>(stream, launch);
  } else {
    if constexpr (has_many_rows_of_halves(kCodes)) {
      if (launch.work.matrices[0].w.halves) return launch_tiles_of_form<kCodes, true>(stream, launch);
    }
    launch_tiles_of_form<kCodes, false>(stream, launch);
  }
}

}  // namespace quire::cuda
