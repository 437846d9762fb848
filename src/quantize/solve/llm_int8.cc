#include "quantize/solve/llm_int8.h"

#include <algorithm>
#include <cmath>

#include "quantize/solve/smoothquant.h"

namespace quire {

IntegerMatrix round_to_llm_int8(const FloatMatrix& weights, Team& team) {
  IntegerMatrix to(weights.rows, weights.cols, int8_rows(ScaleType::kF32));
  constexpr float kMost = 127;
  team.for_tiles(weights.rows, [&](int r, int) {
    const std::span<const float> from = weights.row(r);
    const std::span<uint8_t> codes = to.codes_of(r);
    float largest = 0;
    for (const float w : from) largest = std::max(largest, std::fabs(w));
    const float steps = largest > 0 ? kMost * (1 / largest) : 0;  // torch divides by way of the inverse
    to.set_fit(r, 0, {largest > 0 ? largest / kMost : 1, to.grid.middle()});
    for (size_t i = 0; i < from.size(); ++i)
      codes[i] = static_cast<uint8_t>(static_cast<int>(std::nearbyint(std::clamp(from[i] * steps, -kMost, kMost))) +
                                      to.grid.middle());
  });
  return to;
}

}  // namespace quire
