// A tap for the inputs of linears: what calibration learns from (importance matrices, GPTQ, AWQ).
#pragma once

#include <span>

#include "ops/linear.h"
#include "ops/rows.h"

namespace quire {

class InputObserver {
 public:
  virtual ~InputObserver() = default;
  // Each of the linears multiplies these rows, [rows, x.cols]: numbers after norms and transforms, before rounding. They
  // lie in memory that the host can read, during the call. A linear may be named twice. A mixture shows its rows for the
  // gate of an expert, and not again for what is multiplied by it.
  virtual void see(std::span<const Linear* const> linears, const Rows& x, int rows) = 0;
};

}  // namespace quire
