#include "ops/rope_table.h"

#include <cstddef>

#include "ops/sin_cos.h"

namespace quire {

void RopeTable::at(int position, float* cos_sin) const {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto [sin, cos] = sin_cos(static_cast<float>(position) * frequencies[i]);
    cos_sin[2 * i] = static_cast<float>(cos) * amplitude;
    cos_sin[2 * i + 1] = static_cast<float>(sin) * amplitude;
  }
}

}  // namespace quire
