// What speculative decoding keeps of a sequence.
#pragma once

#include <cstddef>

#include "quire/types.h"
#include "speculate/acceptance.h"
#include "speculate/ngram_drafter.h"

namespace quire {

struct SequenceDrafting {
  NgramDrafter ngram;
  size_t seen = 0;  // tokens that the drafter knows
  RequestAcceptance acceptance;

  // The last proposal.
  int confidence = 0;
  TokenId first = kNoToken;  // its first token; kNoToken: none, or it was verified
  size_t at = 0;             // the place of that token
};

}  // namespace quire
