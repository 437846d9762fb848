// The states of recurrent layers: one per running sequence, and checkpoints that the prefix tree keeps.
#pragma once

#include <optional>
#include <utility>

#include "engine/cache/cached_pages.h"
#include "engine/step/orders.h"
#include "kv/slot_pool.h"

namespace quire {

// A prefix hit needs the state after its last token. So the state is copied to a checkpoint
//   - after the last full page that a request with the same prompt can take over,
//   - after every kCheckpointEvery tokens of longer prompts, for prompts that diverge,
//   - where the prompt of a waiting request parts from this one,
//   - after each page of an answer, always to the same slot; it is kept when the answer ends, for the next turn. A page that
//     ends among drafts of which some were wrong gets none.
// If no slot is free, the least recently used checkpoint is evicted. If there is none to evict, no copy is made.
class SequenceStates {
 public:
  static constexpr int kCheckpointEvery = 1024;  // tokens

  // The first `own` states of the cache are for running sequences, `checkpoints` has the others. own: 0 if the model has no
  // recurrent layers.
  SequenceStates(Orders& orders, SlotPool& checkpoints, int own);

  bool none() const { return none_; }  // the model has no recurrent layers
  // Reserves memory for the sequence's plans.
  void prepare(RecurrentState& r, int prompt_tokens) const;
  // Sets the sequence's state to a checkpoint's or another sequence's. Without one, its next row is the first, which starts
  // from an empty state, or a load writes the state.
  void set(RecurrentState& r, std::optional<int> from);
  // Plans a checkpoint after the first `pages` pages of the prompt. false: enough are planned.
  static bool want(RecurrentState& r, int pages);
  // Plans the checkpoints of a step that computes tokens [from, to): sets r.copies. has(page): there is one;
  // evict() gives back a slot, if the tree has one.
  template <class Has, class Evict>
  void plan(RecurrentState& r, int from, int to, int prompt_tokens, Has has, Evict evict) {
    for (int end = (from / kPageTokens + 1) * kPageTokens; end <= to; end += kPageTokens) {
      const bool last_of_prompt = end == (prompt_tokens - 1) / kPageTokens * kPageTokens;
      const bool answer = end >= prompt_tokens && end + kPageTokens > to;
      const bool every = end < prompt_tokens && end % kCheckpointEvery == 0;
      if (!answer && !last_of_prompt && !every && !is_wanted(r, end / kPageTokens)) continue;
      if (has(end / kPageTokens - 1)) continue;
      // The last checkpoint of the answer is overwritten, so it holds nothing until the step is computed.
      const auto slot = answer && r.latest ? std::exchange(r.latest, std::nullopt)->slot : take(evict);
      if (slot) add(r, end / kPageTokens - 1, end - from - 1, *slot);
    }
  }
  // Before a step with drafts, after plan(): remembers the state after its row `row`, the last one before the drafts.
  void plan_return(RecurrentState& r, int row);
  // After the step: that is the sequence's state.
  static void go_back(RecurrentState& r) { std::swap(r.slot, r.undrafted); }
  // The step is computed: attach(page, slot) takes over each planned checkpoint of the prompt and returns whether it did.
  template <class Attach>
  void commit(RecurrentState& r, int prompt_tokens, Attach attach) {
    for (const PageCheckpoint& checkpoint : r.planned) {
      if ((checkpoint.page + 1) * kPageTokens >= prompt_tokens) {
        r.latest = checkpoint;
      } else if (!attach(checkpoint)) {
        checkpoints_.give_back(checkpoint.slot);
      }
    }
    r.planned.clear();
    r.copies.clear();
  }
  // A checkpoint of the state as it is now, if there is a slot for it.
  template <class Evict>
  std::optional<int> copy(const RecurrentState& r, Evict evict) {
    const auto slot = take(evict);
    if (slot) orders_.copy_state(r.slot, *slot);
    return slot;
  }
  // Gives back the sequence's slots; attach() as above for the checkpoint of its answer.
  template <class Attach>
  void release(RecurrentState& r, Attach attach) {
    for (const PageCheckpoint& checkpoint : r.planned) checkpoints_.give_back(checkpoint.slot);
    if (r.latest && !attach(*r.latest)) checkpoints_.give_back(r.latest->slot);
    if (r.slot >= 0) own_.give_back(r.slot);
    if (r.undrafted >= 0) own_.give_back(r.undrafted);
    r.planned.clear();
    r.copies.clear();
    r.latest.reset();
    r.slot = r.undrafted = -1;
  }

 private:
  template <class Evict>
  std::optional<int> take(Evict evict) {
    const auto slot = checkpoints_.take();
    if (slot) return slot;
    evict();
    return checkpoints_.take();
  }
  static bool is_wanted(const RecurrentState& r, int pages);
  static void add(RecurrentState& r, int page, int row, int slot);

  Orders& orders_;
  SlotPool& checkpoints_;
  SlotPool own_;
  const bool none_;
};

}  // namespace quire
