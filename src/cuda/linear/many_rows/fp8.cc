#include "cuda/kernels/many_rows/linear_of_fp8_rows.h"
#include "cuda/linear/linear_fp8.h"
#include "cuda/linear/many_rows/launch_tiles.h"

namespace quire::cuda {
namespace {

template <int kTogether>
void launch_together(Stream& stream, const LinearLaunch& launch) {
  // 128 columns of parts would spill 120 bytes of registers.
  if (launch.work.parts.matrices != nullptr) {
    if (launch.usual_rows <= 8) return launch_tiles_of_parts<LinearOfFp8Rows<8, kTogether, true>>(stream, launch);
    return launch_tiles_of_parts<LinearOfFp8Rows<64, kTogether, true>>(stream, launch);
  }
  if (launch.usual_rows <= 8) return launch_tiles_of_rows<LinearOfFp8Rows<8, kTogether>>(stream, launch);
  if (launch.usual_rows <= 64) return launch_tiles_of_rows<LinearOfFp8Rows<64, kTogether>>(stream, launch);
  launch_tiles_of_rows<LinearOfFp8Rows<128, kTogether>>(stream, launch);
}

}  // namespace

void launch_fp8(Stream& stream, const LinearLaunch& launch) {
  const WeightShape& w = launch.work.matrices[0].w;
  const bool chunk_has_one_scale = w.group_blocks % 4 == 0 || w.group_blocks >= w.blocks;
  chunk_has_one_scale ? launch_together<4>(stream, launch) : launch_together<1>(stream, launch);
}

}  // namespace quire::cuda
