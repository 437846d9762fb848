// Linears with FP8 inputs (kFp8): of FP8 weights, on GPUs with warpgroups.
//
// A result has the bits that kernels/many_rows/linear_of_fp8_rows.h defines, for any number of rows.
#pragma once

#include "cuda/linear/linear_launch.h"

namespace quire::cuda {

// Whether rows of E4M3 can be multiplied as such.
inline bool has_fp8_products(const DeviceFacts& facts) { return facts.major == 9; }

// Not gated. All matrices of the work fulfil takes_fp8().
void launch_fp8(Stream& stream, const LinearLaunch& launch);

}  // namespace quire::cuda
