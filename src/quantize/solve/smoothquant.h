// SmoothQuant (Xiao et al., arXiv 2211.10438): moves what is hard to round from the inputs to the weights, which are easier,
// so that both can be int8. And the int8 rows that it and LLM.int8 (Dettmers et al., arXiv 2208.07339) round to.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/team.h"
#include "quantize/input_statistics.h"
#include "quantize/solve/awq.h"
#include "quantize/solve/integer_grid.h"

namespace quire {

// The grid of int8 weights: symmetric, -127 .. 127, a scale for each output.
IntegerGrid int8_rows(ScaleType type);

// s = max|x|^alpha / max|w|^(1 - alpha) for each input. Without an alpha the best of 0, 0.05 ... 1 is taken, by the outputs of
// the sampled rows of inputs with inputs and weights in int8, a scale for each row of either; 0.5 if there is no sample.
// largest_weights: [cols], of all matrices that read the inputs; weights: rows of them, or a fair sample. tied: as for
// search_awq_scales(). inputs: of at least one row.
InputScales search_smooth_scales(const FloatMatrix& weights, std::span<const float> largest_weights,
                                 const InputStatistics& inputs, std::span<const int> tied, std::optional<float> alpha,
                                 Team& team);

// Rounds each row to int8 with its own scale, greatest magnitude / 127.
void round_rows_to_int8(FloatMatrix& matrix);

}  // namespace quire
