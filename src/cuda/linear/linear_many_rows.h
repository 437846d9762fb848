// Linears of many rows by warpgroups, where the device has them.
#pragma once

#include "cuda/linear/linear_launch.h"

namespace quire::cuda {

// Codes in groups of 16 inputs that LinearOfManyRows is compiled for.
constexpr bool has_many_rows_of_halves(Codes codes) {
  return codes == Codes::kU2 || codes == Codes::kU3 || codes == Codes::kU6 || codes == Codes::kTable4 ||
         codes == Codes::kFloat4;
}

// Whether products of warpgroups can multiply so many rows of a kind, and are faster; rows of E4M3 have no other kernels. Of gated
// matrices, one after the other.
bool takes_many_rows(const DeviceFacts& facts, const LaunchKind& kind, int rows);

// Not gated; all matrices of the work fulfil takes_many_rows().
template <Codes kCodes>
void launch_many_rows(Stream& stream, const LinearLaunch& launch);
void launch_many_rows(Stream& stream, Codes codes, const LinearLaunch& launch);

}  // namespace quire::cuda
