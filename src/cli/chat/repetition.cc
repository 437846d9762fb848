#include "cli/chat/repetition.h"

#include <algorithm>
#include <cstddef>

namespace quire {

bool ends_in_loop(std::span<const TokenId> answer) {
  for (size_t block = 1; block <= kLongestLoop; ++block) {
    const size_t looped = std::max<size_t>(kLoopTokens, block * kLoopCopies);
    if (answer.size() < looped) break;
    const auto tail = answer.last(looped);
    if (std::equal(tail.begin() + static_cast<ptrdiff_t>(block), tail.end(), tail.begin())) return true;
  }
  return false;
}

}  // namespace quire
