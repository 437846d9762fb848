// From the final hidden states of a prompt to an embedding or scores.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/request_state.h"
#include "engine/scheduler.h"
#include "engine/step/forward.h"

namespace quire {

// Which rows of a chunk the request pools, as the order for them; nothing if the chunk has none and does not end the prompt.
// row: the chunk's first one in the pass. hidden: the model's size. Takes the sum so far from r.hidden.
std::optional<PooledRows> rows_to_pool(RequestState& r, const Chunk& chunk, int row, int hidden);

// Takes what the executor made of the rows into r.hidden. labels: of a classifier; the results of other models get length 1.
void take_pooled(RequestState& r, const PooledRows& order, const std::vector<float>& pooled, int labels);

// Whether the request gets logits in place of hidden states.
bool keeps_logits(const Request& r);
// Appends logits [rows][vocab] of the prompt to r.hidden.
void take_logits(RequestState& r, std::span<const float> logits);

// Reserves r.hidden for arrays of numbers of each token. May throw std::bad_alloc.
void reserve_pooled(RequestState& r, int hidden, int vocab);

}  // namespace quire
