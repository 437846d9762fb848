// LLM.int8 (Dettmers et al., arXiv 2208.07339): int8 weights with a scale for each output. Inputs that are outliers meet the
// same weights unrounded at run time, so nothing is solved here: the bytes are bitsandbytes'.
#pragma once

#include "base/team.h"
#include "quantize/solve/integer_grid.h"

namespace quire {

// Codes round(w * (127 / m)) for the greatest magnitude m of the row, plus 128. weights: finite.
IntegerMatrix round_to_llm_int8(const FloatMatrix& weights, Team& team);

}  // namespace quire
