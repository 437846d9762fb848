// What speculative decoding keeps of a sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "quire/types.h"
#include "speculate/acceptance.h"
#include "speculate/lookup/lookahead.h"
#include "speculate/lookup/ngram_drafter.h"

namespace quire {

// Of the drafters that look only at tokens.
struct TextDrafting {
  std::optional<NgramDrafter> ngram;
  std::optional<Lookahead> lookahead;
  size_t ngram_seen = 0, lookahead_seen = 0;  // tokens that they know
};

// Of the drafter that computes. It knows the first `computed` tokens; of the others it has features if it needs them.
struct ModelDrafting {
  int computed = 0;
  uint64_t step = 0;    // the step that computed the features
  int feature = 0;      // the row of the first one
  int features_at = 0;  // the position of its token
  int features = 0;     // how many
};

struct SequenceDrafting {
  TextDrafting text;
  ModelDrafting model;

  // The draft stage's own.
  RequestAcceptance acceptance;
  int drafter = -1, confidence = 0;  // who made the sequence's drafts, and how sure it is
  uint32_t failed = 0;               // bit i: drafter i has failed and is not asked again
  // By drafter: what it proposed last and nobody verified.
  struct Proposal {
    int confidence = 0;
    TokenId first = kNoToken;  // its first token; kNoToken: nothing
    size_t at = 0;             // the place of that token
  };
  std::vector<Proposal> proposals;
};

}  // namespace quire
