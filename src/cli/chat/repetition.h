// Notices an answer that goes round in circles.
#pragma once

#include <span>

#include "quire/types.h"

namespace quire {

// A loop: the answer ends with one block of tokens at least 4 times in direct succession, and the copies together have at
// least 64 tokens. So a block of 8 tokens must come 8 times, one of 40 four times. Blocks longer than 64 tokens are not
// looked for. Rows of equal table cells or digits in ordinary answers are shorter.
inline constexpr int kLoopCopies = 4, kLoopTokens = 64, kLongestLoop = 64;

// Whether the answer so far ends in a loop. Cheap enough to ask after each token.
bool ends_in_loop(std::span<const TokenId> answer);

}  // namespace quire
