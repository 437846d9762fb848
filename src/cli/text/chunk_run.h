// Logits of the later tokens of a chunk of text.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "engine/single_sequence.h"

namespace quire {

// Rows with logits that a model computes in one step: what LoadedModel takes as max_logits.
inline constexpr int kScoredRows = 64;

struct ScoredRows {
  size_t position;  // of the first, in the chunk
  size_t count;
  std::span<const float> logits;  // [count, vocab]: of the token after each; valid until the next step of the model

  std::span<const float> row(size_t i) const {
    return logits.subspan(i * (logits.size() / count), logits.size() / count);
  }
};

// Computes a chunk on a sequence that it clears first, up to kScoredRows at a time.
class ChunkRun {
 public:
  // first: the first position with logits; the last is chunk.size() - 2, whose successor is the chunk's last token. Both
  // must outlive the run.
  ChunkRun(SingleSequence& sequence, std::span<const TokenId> chunk, size_t first);

  std::optional<ScoredRows> next();  // nullopt: the chunk is done

 private:
  SingleSequence& sequence_;
  std::span<const TokenId> chunk_;
  size_t at_ = 0;
};

}  // namespace quire
