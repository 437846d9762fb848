// Low-rank changes of linears over a team: all products of a call together, in two loops.
#pragma once

#include <span>

#include "ops/cpu/linear.h"
#include "ops/low_rank.h"

namespace quire {

// As Operations::add_low_rank().
void add_low_rank(const Compute& compute, const InputMemory& inputs, ProjectionParts& parts, const Rows& x,
                  const NormView& norm, const Rows& inner, std::span<const LowRankProduct> products);

}  // namespace quire
