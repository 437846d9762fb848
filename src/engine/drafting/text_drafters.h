// The drafters that look only at tokens.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/drafting/drafter_kinds.h"
#include "engine/sequence.h"
#include "speculate/lookup/corpus.h"
#include "speculate/lookup/drafts.h"
#include "speculate/lookup/recent_outputs.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// A drafter that fails (std::bad_alloc) must be dropped for that sequence before it is used again.
class TextDrafters {
 public:
  // Throws Error: the corpus cannot be read.
  TextDrafters(std::vector<DrafterKind> kinds, const EngineOptions& options, const Tokenizer* tokenizer);

  std::span<const DrafterKind> kinds() const { return kinds_; }
  bool has(DrafterKind kind) const;

  // Memory of these drafters in addition to the corpus: for sequences with this many tokens in total, of which at most
  // `sequences` run.
  static size_t memory_bytes(std::span<const DrafterKind> kinds, size_t tokens, int sequences);
  // Sequences beyond that many tokens get no drafts from themselves.
  void limit(size_t tokens) { most_tokens_ = tokens; }

  // Before a step: `running` are the sequences with a SequenceDrafting.
  void begin_step(const Sequences& running);
  // Replaces `out` by at most one draft of the sequence, after giving the drafter its new tokens.
  void propose(DrafterKind kind, Sequence& s, int depth, Drafts& out);
  // A step verified drafts of the sequence: the target's tokens after each row, of which the first `accepted` drafts were
  // right. For kLookahead.
  static void observe(Sequence& s, int accepted, std::span<const TokenId> predicted);
  void remember(const Sequence& s);  // its answer, for kRecent
  static void drop(DrafterKind kind, Sequence& s);

 private:
  void follow_ngrams(Sequence& s);

  std::vector<DrafterKind> kinds_;
  std::optional<Corpus> corpus_;
  std::optional<RecentOutputs> recent_;
  size_t tokens_ = 0, most_tokens_ = 0;  // tokens that n-gram drafters have room for, and the most
};

}  // namespace quire
