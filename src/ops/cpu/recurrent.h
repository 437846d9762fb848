// Recurrent layers over a team: what ops/backend.h says of them.
#pragma once

#include <span>

#include "ops/cpu/compute.h"
#include "ops/recurrent.h"

namespace quire {

void convolve(const Compute& compute, const LayerStates& states, const Convolution& args,
              std::span<const StateSpan> spans);
void delta_rule(const Compute& compute, const LayerStates& states, const DeltaRule& args,
                std::span<const StateSpan> spans, int rows);
void state_space(const Compute& compute, const LayerStates& states, const StateSpace& args,
                 std::span<const StateSpan> spans, int rows);

}  // namespace quire
