// A text in chunks of equal length, as llama.cpp's perplexity tool takes it: each chunk is a prompt of its own, and the
// logits of its later tokens are looked at.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "engine/single_sequence.h"

namespace quire {

struct TextChunks {
  TokenIds ids;     // of all chunks; each begins with the BOS token if the model's prompts do
  size_t size = 0;  // tokens of a chunk

  size_t count() const { return ids.size() / size; }
  std::span<const TokenId> chunk(size_t i) const { return std::span(ids).subspan(i * size, size); }
};

// Of a UTF-8 file; a rest that is no whole chunk is left out. size: at least 3. most: chunks; -1: all. Throws Error: the
// model has no vocabulary, the text is too short for a chunk.
TextChunks read_chunks(const LoadedModel& model, const std::string& file, int size, int most);

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
