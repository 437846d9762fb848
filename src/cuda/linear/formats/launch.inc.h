// launch_linear(), for the files that instantiate it.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>

#include "cuda/kernels/linear_few_rows.h"
#include "cuda/kernels/linear_rows.h"
#include "cuda/kernels/linear_tiles.h"
#include "cuda/linear/linear_launch.h"

namespace quire::cuda {

template <class Format, int kTerms, int kTiles, int kPanels, ScaleForm kForm = ScaleForm::kAny>
void launch_rows(Stream& stream, const LinearLaunch& launch) {
  using Kernel = LinearOfRows<Format, kTerms, kTiles, kPanels, kForm>;
  int together = kPanels;
  if (launch.work.gated != 0) together = 1;
  stream.launch({.x = panel_tiles(launch.work, together),
                 .y = (launch.usual_rows + Kernel::kRows - 1) / Kernel::kRows,
                 .z = launch.parts,
                 .threads = Kernel::kThreads,
                 .shared_bytes = Kernel::kSharedBytes},
                Kernel{launch.work});
}

// Whether it was launched: its inputs may be too large.
template <class Format, int kPanels, ScaleForm kForm>
bool launch_held_rows(Stream& stream, const LinearLaunch& launch) {
  using Kernel = LinearOfFewRows<Format, kPanels, kForm>;
  const LinearWork& work = launch.work;
  if (work.parts.matrices != nullptr || work.rows > Kernel::kMostRows) return false;
  const int range_blocks = most_range_blocks(work.matrices[0].w.blocks);
  const int shared = Kernel::shared_bytes(work.rows, range_blocks);
  const int room = stream.facts().shared_bytes / (shared + 1024);  // blocks on a processor
  if (room < 2) return false;
  int together = kPanels;
  if (work.gated != 0) together = 1;
  const int tiles = panel_tiles(work, together);
  stream.launch({.x = std::min(tiles, std::min(room, Kernel::kBlocks) * stream.facts().processors),
                 .threads = Kernel::kThreads,
                 .shared_bytes = shared},
                Kernel{work, tiles, range_blocks, launch.late ? launch.late->rows() : NormedRows{}});
  return true;
}

// Up to 8 rows. Two panels in a block share their inputs; with one there are more blocks, for matrices that have few.
template <class Format, ScaleForm kForm>
void launch_few_rows(Stream& stream, const LinearLaunch& launch) {
  const bool few = panel_tiles(launch.work, 1) * launch.parts < 4 * stream.facts().processors;
  const bool one = launch.work.gated == 0 && (launch.variant.panels > 0 ? launch.variant.panels == 1 : few);
  const bool held = launch.variant.kernel == LinearKernel::kFewRows;
  if (held &&
      (one ? launch_held_rows<Format, 1, kForm>(stream, launch) : launch_held_rows<Format, 2, kForm>(stream, launch)))
    return;
  if (launch.late) launch.late->launch(stream);
  if (one) return launch_rows<Format, 1, 1, 1, kForm>(stream, launch);
  launch_rows<Format, 1, 1, 2, kForm>(stream, launch);
}
template <class Format>
void launch_few_rows(Stream& stream, const LinearLaunch& launch) {
  const ScaleForm form = scale_form(launch.work.matrices[0].w);
  if constexpr (kCanBeHalf<Format::kCodes, Format::kHalves>) {
    if (form == ScaleForm::kHalf) return launch_few_rows<Format, ScaleForm::kHalf>(stream, launch);
  }
  if constexpr (kCanBeSuper<Format::kCodes, Format::kHalves>) {
    if (form == ScaleForm::kSuper) return launch_few_rows<Format, ScaleForm::kSuper>(stream, launch);
  }
  launch_few_rows<Format, ScaleForm::kAny>(stream, launch);
}

template <class Kernel>
LaunchShape tiles_shape(const LinearLaunch& launch) {
  return {.x = panel_tiles(launch.work, launch.work.gated != 0 ? Kernel::kPanels / 2 : Kernel::kPanels),
          .y = (launch.usual_rows + Kernel::kRows - 1) / Kernel::kRows,
          .z = launch.parts,
          .threads = Kernel::kThreads,
          .shared_bytes = Kernel::shared_bytes()};
}

// Clocks that a block of LinearOfTiles takes for 32 inputs if each scheduler has two warps, because it has eight or shares a
// processor with another; and if each has one. A warp issues about 180 instructions for 32 products of matrices, which take about 200 clocks.
inline constexpr int64_t kPairedClocks = 400, kAloneClocks = 280;
// Instructions of a warp of LinearOfRows for 32 inputs by 32 rows: not counted, but estimated from its loop.
inline constexpr int64_t kRowsInstructions = 95;

// Estimates, in clocks for 32 inputs.
template <class Kernel>
int64_t tiles_clocks(const DeviceFacts& facts, const LinearLaunch& launch) {
  if (Kernel::shared_bytes() > facts.shared_bytes) return std::numeric_limits<int64_t>::max();
  const LaunchShape shape = tiles_shape<Kernel>(launch);
  const int64_t blocks = int64_t{shape.x} * shape.y * shape.z, processors = facts.processors;
  if (Kernel::kThreads > 128) return (blocks + processors - 1) / processors * kPairedClocks;
  return blocks <= processors ? kAloneClocks : (blocks + 2 * processors - 1) / (2 * processors) * kPairedClocks;
}
inline int64_t rows_clocks(const DeviceFacts& facts, const LinearLaunch& launch) {
  const int64_t panels = panel_tiles(launch.work, 1) * (launch.work.gated + 1);
  return panels * launch.parts * ((launch.usual_rows + 31) / 32) * kRowsInstructions / (4 * facts.processors);
}

template <class Format>
void launch_format(Stream& stream, const LinearLaunch& launch) {
  if (launch.form == Activations::kF32) {  // for comparisons, and small routers
    if (launch.usual_rows <= 8) return launch_rows<Format, 3, 1, 2>(stream, launch);
    return launch_rows<Format, 3, 2, 2>(stream, launch);
  }
  // Groups of 16 need more registers for a tile: twice the warps share the rows.
  using Tiles = LinearOfTiles<Format, 1, 2, Format::kHalves ? 4 : 2, Format::kHalves ? 4 : 8>;
  if (launch.usual_rows <= 8) return launch_few_rows<Format>(stream, launch);
  if (launch.usual_rows <= 16) return launch_rows<Format, 1, 2, 2>(stream, launch);
  const bool faster = rows_clocks(stream.facts(), launch) <= tiles_clocks<Tiles>(stream.facts(), launch);
  const bool rows =
      launch.variant.kernel == LinearKernel::kUsual ? faster : launch.variant.kernel == LinearKernel::kRows;
  if (rows) return launch_rows<Format, 1, 4, 2>(stream, launch);
  stream.launch(tiles_shape<Tiles>(launch), Tiles{launch.work});
}

template <Codes kCodes, bool kHalves>
void launch_groups(Stream& stream, const LinearLaunch& launch) {
  constexpr bool kMinimaExist = kCodes <= Codes::kU5 || kCodes == Codes::kI8;
  const bool minima = launch.work.matrices[0].w.zeros != ZeroKind::kConstant;
  assert(!minima || kMinimaExist);
  if constexpr (kMinimaExist) {
    if (minima) return launch_format<LinearFormat<kCodes, kHalves, true>>(stream, launch);
  }
  launch_format<LinearFormat<kCodes, kHalves, false>>(stream, launch);
}

template <Codes kCodes>
void launch_linear(Stream& stream, const LinearLaunch& launch) {
  constexpr bool kHalvesExist = kHasScales<kCodes> && kCodes != Codes::kU5, kWholeExist = kCodes != Codes::kU6;
  const bool halves = launch.work.matrices[0].w.halves;
  assert(halves ? kHalvesExist : kWholeExist);
  if constexpr (kHalvesExist) {
    if (halves || !kWholeExist) return launch_groups<kCodes, true>(stream, launch);
  }
  if constexpr (kWholeExist) launch_groups<kCodes, false>(stream, launch);
}

}  // namespace quire::cuda
