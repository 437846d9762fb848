// Linears with int8 inputs (kInt8, kInt8Row): by codes that are integers.
//
// A result has the bits of the CPU's (LinearArgs, kernels/kernels.h) for the same rounded inputs, whichever kernel computes it.
#pragma once

#include "cuda/linear/linear_launch.h"

namespace quire::cuda {

// As launch_linear(). kCodes: has_integer_codes().
template <Codes kCodes>
void launch_int8(Stream& stream, const LinearLaunch& launch);
void launch_int8(Stream& stream, Codes codes, const LinearLaunch& launch);

// With products of warpgroups, for rows of kInt8Row, not gated.
void launch_many_int8_rows(Stream& stream, const LinearLaunch& launch);

}  // namespace quire::cuda
