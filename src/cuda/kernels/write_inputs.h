// Inputs of a row in any form (cuda/linear/inputs.h), for the kernels that prepare them.
#pragma once

#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/fp8/inputs.h"
#include "cuda/kernels/int8/inputs.h"
#include "cuda/kernels/prepared_row.h"
#include "kernels/types.h"

namespace quire::cuda {

// Whether the rounding of an input depends on its whole row, which see_input() goes through first.
template <Activations kForm>
inline constexpr bool kNeedsWholeRow = kForm == Activations::kInt8Row || kForm == Activations::kFp8;

// threshold: of kInt8Row.
template <Activations kForm>
DEVICE void see_input(RowMost& most, float x, float threshold) {
  if constexpr (kForm == Activations::kInt8Row) {
    most.see(x, threshold);
  } else {
    most.largest = larger_of(most.largest, magnitude_bits(x));
  }
}

// Inputs 8 * eight .. + 7. most: of the row, where it is needed. The lanes that call it: as of write_eight().
template <Activations kForm>
DEVICE void write_inputs(const float (&inputs)[8], int eight, int blocks, const RowMost& most, float threshold,
                         Global<uint8_t> row) {
  if constexpr (kForm == Activations::kInt8) {
    write_int8_eight(inputs, eight, blocks, row);
  } else if constexpr (kForm == Activations::kInt8Row) {
    write_int8_row_eight(inputs, eight, blocks, most, threshold, row);
  } else if constexpr (kForm == Activations::kFp8) {
    write_fp8_eight(inputs, eight, blocks, most.largest, row);
  } else {
    write_eight<kForm == Activations::kF32 ? 3 : 1>(inputs, eight, blocks, row);
  }
}

}  // namespace quire::cuda
