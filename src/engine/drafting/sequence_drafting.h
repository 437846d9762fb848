// What speculative decoding keeps of a sequence.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "quire/types.h"
#include "speculate/acceptance.h"
#include "speculate/lookahead.h"
#include "speculate/ngram_drafter.h"

namespace quire {

struct SequenceDrafting {
  std::optional<NgramDrafter> ngram;
  std::optional<Lookahead> lookahead;
  size_t seen = 0;  // tokens that they know
  RequestAcceptance acceptance;

  // By drafter: what it proposed last and nobody verified.
  struct Proposal {
    int confidence = 0;
    TokenId first = kNoToken;  // its first token; kNoToken: nothing
    size_t at = 0;             // the place of that token
  };
  std::vector<Proposal> proposals;

  int drafter = -1, confidence = 0;  // of the sequence's drafts

  // The drafter that computes. It knows the first `computed` tokens; of the others it has features if it needs them.
  int computed = 0;
  uint64_t step = 0;    // of the features
  int feature = 0;      // the row of the first one
  int features_at = 0;  // the position of its token
  int features = 0;     // how many
};

}  // namespace quire
