// Matrices made of rows of other packed matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/packed.h"

namespace quire {

// Writes panels [begin, end) of the matrix whose row i is row rows[i] of `from`, without unpacking: a row keeps its bits,
// so a linear gives the same numbers for it. data: of that matrix, describe_packed(from.format, from.factor, rows.size(),
// from.cols), zeroed.
void take_rows(const PackedMatrix& from, std::span<const int32_t> rows, std::byte* data, int begin, int end);

}  // namespace quire
