// Rotary positions, and keys and values into the cache.
#pragma once

#include <span>

#include "cuda/attention/attention_lists.h"
#include "cuda/stream.h"
#include "ops/attention.h"
#include "ops/rope_table.h"
#include "ops/rows.h"

namespace quire::cuda {

// As Operations::rotations(), with the CPU's bits for angles below 2^27, which no model exceeds.
void rotations(Stream& stream, std::span<const RotationSpan> spans, const Rows& to);

// As Operations::position_and_store(), with the CPU's bits. Of keys and values in args.k and args.v it may leave anything.
void position_and_store(Stream& stream, AttentionLists& lists, const PositionArgs& args,
                        std::span<const AttentionSpan> spans, int rows);

}  // namespace quire::cuda
