// The drafters that look only at tokens.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "engine/sequence.h"
#include "speculate/corpus.h"
#include "speculate/drafts.h"
#include "speculate/recent_outputs.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

class TextDrafters {
 public:
  enum Kind : uint8_t {
    kNgram,      // earlier in the sequence
    kCorpus,     // the user's corpus
    kRecent,     // the tenant's recent answers
    kLookahead,  // n-grams of the target's own guesses
  };

  // What the options name. Throws Error: the corpus cannot be read.
  TextDrafters(const EngineOptions& options, const Tokenizer* tokenizer);

  std::span<const Kind> kinds() const { return kinds_; }
  bool has(Kind kind) const;

  // Memory in addition to the corpus: for sequences with this many tokens in total, of which at most `sequences` run.
  size_t memory_bytes(size_t tokens, int sequences) const;
  // Sequences beyond that many tokens get no drafts from themselves.
  void limit(size_t tokens) { most_tokens_ = tokens; }

  // Before a step: `running` are the sequences with a SequenceDrafting.
  void begin_step(const Sequences& running);
  // Gives the drafters the sequence's new tokens.
  void follow(Sequence& s);
  // Replaces `out` by at most one draft of the sequence.
  void propose(Kind kind, Sequence& s, int depth, Drafts& out);
  // A step verified drafts of the sequence: the target's tokens after each row, of which the first `accepted` drafts were
  // right.
  void observe(Sequence& s, int accepted, std::span<const TokenId> predicted);
  void remember(const Sequence& s);  // its answer

 private:
  std::vector<Kind> kinds_;
  std::optional<Corpus> corpus_;
  std::optional<RecentOutputs> recent_;
  size_t tokens_ = 0, most_tokens_ = 0;  // of n-gram drafters
};

std::string_view drafter_name(TextDrafters::Kind kind);  // one of kDrafters

}  // namespace quire
