// Recurrent layers: what ops/backend.h says of them. Rows and states lie in memory of the device. A span's rows are done one
// by one, by the same operations whatever the cut into steps.
#pragma once

#include <span>
#include <vector>

#include "cuda/kernels/short_conv.h"
#include "cuda/stream.h"
#include "ops/recurrent.h"

namespace quire::cuda {

// Memory for the lists of a call, so that calls allocate nothing once it has grown.
struct SpanLists {
  std::vector<PlacedSpan> spans;
  std::vector<StateCopy> copies;
};

void convolve(Stream& stream, SpanLists& lists, const LayerStates& states, const Convolution& args,
              std::span<const StateSpan> spans);
void delta_rule(Stream& stream, SpanLists& lists, const LayerStates& states, const DeltaRule& args,
                std::span<const StateSpan> spans, int rows);
void state_space(Stream& stream, SpanLists& lists, const LayerStates& states, const StateSpace& args,
                 std::span<const StateSpan> spans, int rows);

}  // namespace quire::cuda
