// How drafters that compute choose the tokens of their drafts.
#pragma once

#include <cstddef>
#include <span>

#include "base/team.h"
#include "quire/types.h"

namespace quire {

// A row of a drafter's logits: the draft of a task has `depth` tokens so far, and the row chooses the next one.
struct DraftRow {
  size_t task = 0;
  int depth = 0;
  bool wanted = true;  // false: the draft ends before it
};

class DraftPicker {
 public:
  virtual ~DraftPicker() = default;
  // logits [rows][cols], overwritten. ids: the columns' tokens; empty: the columns are the ids. out [rows]: the tokens
  // chosen for wanted rows. A task's rows come in the order of their depths.
  virtual void pick(std::span<float> logits, std::span<const DraftRow> rows, std::span<const TokenId> ids,
                    std::span<TokenId> out) = 0;
};

// The most probable token of each row; on a tie, that of the first column.
class BestTokenPicker : public DraftPicker {
 public:
  explicit BestTokenPicker(Team& team) : team_(team) {}
  void pick(std::span<float> logits, std::span<const DraftRow> rows, std::span<const TokenId> ids,
            std::span<TokenId> out) override;

 private:
  Team& team_;
};

TokenId best_token(std::span<const float> logits, std::span<const TokenId> ids);

}  // namespace quire
