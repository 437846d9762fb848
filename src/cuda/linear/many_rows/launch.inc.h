// launch_many_rows(), for the files that instantiate it.
#pragma once

#include "cuda/kernels/linear_of_many_rows.h"
#include "cuda/linear/linear_many_rows.h"

namespace quire::cuda {

template <Codes kCodes, bool kHalves>
void launch_parts_of_blocks(Stream& stream, const LinearLaunch& launch) {
  using Kernel = LinearOfManyRows<kCodes, kHalves>;
  int panel_tiles = 0;
  for (int k = 0; k < launch.work.count; ++k) {
    const int panels = (launch.work.matrices[k].w.rows + kPanel - 1) / kPanel;
    panel_tiles += (panels + Kernel::kPanels - 1) / Kernel::kPanels;
  }
  const int row_tiles = (launch.usual_rows + Kernel::kColumns - 1) / Kernel::kColumns;
  const int outputs = panel_tiles * Kernel::kPanels * kPanel;
  const size_t partial_bytes =
      sizeof(float) * kSplits * static_cast<size_t>(launch.usual_rows) * static_cast<size_t>(outputs);
  // The ranges go to blocks of their own while there are too few blocks for the device.
  const bool split = panel_tiles * row_tiles < stream.facts().processors && partial_bytes <= stream.scratch_bytes();
  const auto partials = split ? reinterpret_cast<float*>(stream.scratch()) : nullptr;
  stream.launch({.x = panel_tiles * row_tiles,
                 .z = split ? kSplits : 1,
                 .threads = Kernel::kThreads,
                 .shared_bytes = Kernel::kSharedBytes},
                Kernel{launch.work, partials, panel_tiles, row_tiles});
  if (!split) return;
  stream.launch({.x = (outputs + FinishSums::kThreads - 1) / FinishSums::kThreads,
                 .y = launch.usual_rows,
                 .threads = FinishSums::kThreads},
                FinishSums{launch.work, partials, outputs, Kernel::kPanels});
}

template <Codes kCodes>
void launch_many_rows(Stream& stream, const LinearLaunch& launch) {
  constexpr bool kCanHaveHalves =
      kCodes == Codes::kU2 || kCodes == Codes::kU3 || kCodes == Codes::kU6 || kCodes == Codes::kFloat4;
  if constexpr (kCanHaveHalves) {
    if (launch.work.matrices[0].w.halves) return launch_parts_of_blocks<kCodes, true>(stream, launch);
  }
  launch_parts_of_blocks<kCodes, false>(stream, launch);
}

}  // namespace quire::cuda
