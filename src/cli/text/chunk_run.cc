#include "cli/text/chunk_run.h"

#include <algorithm>
#include <cassert>

namespace quire {

ChunkRun::ChunkRun(SingleSequence& sequence, std::span<const TokenId> chunk, size_t first)
    : sequence_(sequence), chunk_(chunk) {
  assert(chunk.size() >= 2 && first + 1 < chunk.size());
  constexpr size_t kUnscoredRows = 512;
  sequence_.clear();
  while (at_ < first) {
    const size_t count = std::min(kUnscoredRows, first - at_);
    sequence_.append(chunk_.subspan(at_, count), false);
    at_ += count;
  }
}

std::optional<ScoredRows> ChunkRun::next() {
  const size_t count = std::min<size_t>(kScoredRows, chunk_.size() - 1 - at_);
  if (count == 0) return std::nullopt;
  const ScoredRows rows{at_, count, sequence_.append(chunk_.subspan(at_, count), true)};
  at_ += count;
  return rows;
}

}  // namespace quire
