#include "cuda/kernels/many_rows/linear_of_int8_rows.h"
#include "cuda/linear/linear_int8.h"
#include "cuda/linear/many_rows/launch_tiles.h"

namespace quire::cuda {
namespace {

template <int kColumns>
void launch_int8_columns(Stream& stream, const LinearLaunch& launch) {
  if (launch.work.parts.matrices != nullptr)
    return launch_tiles_of_parts<LinearOfInt8Rows<kColumns, true>>(stream, launch);
  launch_tiles_of_rows<LinearOfInt8Rows<kColumns>, FinishSums<true>>(stream, launch);
}

}  // namespace

void launch_many_int8_rows(Stream& stream, const LinearLaunch& launch) {
  const int columns = launch.variant.columns > 0 ? launch.variant.columns : launch.usual_rows <= 64 ? 64 : 128;
  if (columns == 64) return launch_int8_columns<64>(stream, launch);
  if (columns == 128) return launch_int8_columns<128>(stream, launch);
  launch_int8_columns<256>(stream, launch);
}

}  // namespace quire::cuda
