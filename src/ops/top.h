// The best tokens of a row of logits, for drafts.
#pragma once

#include <cstdint>
#include <span>

namespace quire {

struct Ranked {
  int32_t column;
  float value;

  bool operator==(const Ranked&) const = default;
};

// The best.size() largest numbers of x, largest first; of equal ones the first. NaN is smaller than all numbers. x has at
// least so many.
void top(std::span<const float> x, std::span<Ranked> best);

}  // namespace quire
