#include "ops/sin_cos.h"

#include <cmath>

namespace quire {

SinCos sin_cos(double angle) {
  if (!(std::abs(angle) < 0x1p27)) return {std::sin(angle), std::cos(angle)};
  return small_sin_cos(angle);
}

}  // namespace quire
