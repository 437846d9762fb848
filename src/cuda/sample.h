// What the host samples from, picked on the device, so that a step need not download all logits: what ops/pick.h says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/stream.h"
#include "ops/pick.h"
#include "ops/rows.h"

namespace quire::cuda {

// picks[i]: of row i. The results, one after the other, to `results` [sum of Pick::room()] in memory of the device. Uses the stream's
// scratch memory, which must have room for one row: pick_scratch_bytes().
void pick(Stream& stream, const Rows& x, std::span<const Pick> picks, uint32_t* results);
size_t pick_scratch_bytes(int cols);

}  // namespace quire::cuda
