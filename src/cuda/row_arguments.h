// Rows as kernels take them.
#pragma once

#include <cstdint>

#include "cuda/kernels/row_access.h"
#include "ops/rows.h"

namespace quire::cuda {

inline RowsAt<const float> readable(const Rows& x) { return {Global<const float>(x.data), x.stride}; }
inline RowsAt<float> writable(const Rows& x) { return {Global<float>(x.data), x.stride}; }

// Whether four numbers can be read at once: there, and at the start of each row.
inline bool is_aligned(const float* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
inline bool is_aligned(const Rows& x) { return is_aligned(x.data) && x.stride % 4 == 0; }

}  // namespace quire::cuda
