// The best tokens of rows of logits, for drafts.
#pragma once

#include <cstdint>
#include <span>

#include "ops/compute.h"
#include "ops/rows.h"

namespace quire {

struct Ranked {
  int32_t column;
  float value;

  bool operator==(const Ranked&) const = default;
};

// The `count` largest numbers of each row of x, largest first; of equal ones the first. NaN is smaller than all numbers. out
// [rows][count]; count: at most x.cols.
void top(const Compute& compute, const Rows& x, int rows, int count, std::span<Ranked> out);

}  // namespace quire
