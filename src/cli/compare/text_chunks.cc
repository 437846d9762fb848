#include "cli/compare/text_chunks.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"
#include "base/files/mapped_file.h"

namespace quire {

TextChunks read_chunks(const LoadedModel& model, const std::string& file, int size, int most) {
  if (!model.target.text.tokenizer)
    throw unsupported("{} has no vocabulary, so it cannot read a text", model.info.name);
  const Tokenizer& tokenizer = *model.target.text.tokenizer;
  TextChunks chunks{tokenizer.encode(read_text_file(file), {.add_special = true, .parse_special = false}),
                    static_cast<size_t>(size)};
  size_t count = chunks.count();
  if (most >= 0) count = std::min(count, static_cast<size_t>(most));
  if (count == 0) throw invalid("{} has {} tokens, too few for one chunk of {}", file, chunks.ids.size(), size);
  chunks.ids.resize(count * chunks.size);
  if (tokenizer.adds_bos() && tokenizer.bos()) {
    for (size_t i = 0; i < count; ++i) chunks.ids[i * chunks.size] = *tokenizer.bos();
  }
  return chunks;
}

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
