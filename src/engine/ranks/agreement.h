// What processes that compute together must have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/process_group.h"

namespace quire {

struct RankFact {
  std::string what, value;  // "kernels", "avx512"
};

// All processes must call it with facts of the same names. Throws Error, in all of them, if a value of one rank is not that of
// rank 0: the message names both.
void require_same(ProcessGroup& group, const std::vector<RankFact>& facts);

// The least of all processes' numbers, each for itself.
std::vector<int64_t> least_of_all(ProcessGroup& group, const std::vector<int64_t>& numbers);

}  // namespace quire
