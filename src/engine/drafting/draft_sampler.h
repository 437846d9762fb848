// Drafts for the rejection rule (speculate/rejection.h): drawn from the drafter's distribution, by which the rule judges
// them.
#pragma once

#include <exception>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/team.h"
#include "engine/drafting/draft_model.h"
#include "sampling/sampler.h"
#include "speculate/network/draft_picker.h"

namespace quire {

// Fills Sequence::draft_weights. Sequences that do not draw their tokens get the most probable one.
class DraftSampler : public DraftPicker {
 public:
  // most: weighed tokens of a step. Throws std::bad_alloc.
  DraftSampler(Team& team, int vocab, int most);
  static size_t memory_bytes(int vocab, int most, int threads);

  // A step's tasks, which must outlive its drafts. The weights of the last step are gone.
  void begin(std::span<const DraftTask> tasks);
  // Throws Error if logits are NaN.
  void pick(std::span<float> logits, std::span<const DraftRow> rows, std::span<const TokenId> ids,
            std::span<TokenId> out) override;

 private:
  struct Thread {
    SamplerScratch scratch;
    SamplingParams shape;  // reused, because a new one allocates
  };
  TokenId draw(std::span<const float> logits, const DraftRow& row, std::span<const TokenId> ids,
               std::span<float> memory, Thread& thread);

  Team& team_;
  size_t vocab_;
  int most_, used_ = 0;
  LargeBuffer memory_;  // [most, vocab]
  std::span<const DraftTask> tasks_;
  std::vector<std::span<float>> memory_of_;  // one for each row; empty: takes the most probable token
  std::vector<Thread> threads_;
  std::vector<std::exception_ptr> failures_;  // by thread
};

}  // namespace quire
