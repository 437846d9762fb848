// The tokens that drafters which compute propose.
#pragma once

#include <span>

#include "ops/compute.h"
#include "quire/types.h"

namespace quire {

struct DraftedToken {
  TokenId token;
  float probability;  // by the drafter, among the tokens of its output matrix

  bool operator==(const DraftedToken&) const = default;
};

inline constexpr int kMostBranches = 64;

// The `count` most probable tokens of each row of logits, best first; at most kMostBranches. logits [rows][cols]: they
// become probabilities. ids: of the columns; empty: the columns are the ids. out [rows][count].
void best_tokens(const Compute& compute, std::span<float> logits, int rows, int count, std::span<const TokenId> ids,
                 std::span<DraftedToken> out);

}  // namespace quire
