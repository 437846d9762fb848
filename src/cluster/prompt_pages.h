// What the pages of a simulated sequence hold, without their tokens.
#pragma once

#include <span>
#include <vector>

#include "load/workload.h"
#include "quire/types.h"

namespace quire {

// For each full page of a prompt and its answer, an id in place of its tokens: pages with the same tokens have the same
// id, and others have, but for one in 2^31 pairs, another. Answers are like no other text.
std::vector<TokenId> page_contents(std::span<const PlannedPiece> prompt, size_t request, int answer_tokens,
                                   int page_tokens);

}  // namespace quire
