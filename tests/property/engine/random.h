// Random choices of the engine's property tests.
#pragma once

#include <random>

namespace quire {

using Random = std::mt19937;

// low <= the result <= high
inline int between(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

}  // namespace quire
