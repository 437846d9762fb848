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
  void prepare(CachedPages& c, int prompt_tokens) const;
  // Sets the sequence's state to a checkpoint's or another sequence's. Without one, its next row is the first, which starts
  // from an empty state, or a load writes the state.
  void set(CachedPages& c, std::optional<int> from);
  // Plans a checkpoint after the first `pages` pages of the prompt. false: enough are planned.
  static bool want(CachedPages& c, int pages);
  // Plans the checkpoints of a step that computes tokens [from, to): sets c.state_copies. has(page): there is one;
  // evict() gives back a slot, if the tree has one.
  template <class Has, class Evict>
  void plan(CachedPages& c, int from, int to, int prompt_tokens, Has has, Evict evict) {
    for (int end = (from / kPageTokens + 1) * kPageTokens; end <= to; end += kPageTokens) {
      const bool last_of_prompt = end == (prompt_tokens - 1) / kPageTokens * kPageTokens;
      const bool answer = end >= prompt_tokens && end + kPageTokens > to;
      const bool every = end < prompt_tokens && end % kCheckpointEvery == 0;
      if (!answer && !last_of_prompt && !every && !is_wanted(c, end / kPageTokens)) continue;
      if (has(end / kPageTokens - 1)) continue;
      // The last checkpoint of the answer is overwritten, so it holds nothing until the step is computed.
      const auto slot = answer && c.latest ? std::exchange(c.latest, std::nullopt)->slot : take(evict);
      if (slot) add(c, end / kPageTokens - 1, end - from - 1, *slot);
    }
  }
  // Before a step with drafts, after plan(): remembers the state after its row `row`, the last one before the drafts.
  void plan_return(CachedPages& c, int row);
  // After the step: that is the sequence's state.
  static void go_back(CachedPages& c) { std::swap(c.state, c.undrafted); }
  // The step is computed: attach(page, slot) takes over each planned checkpoint of the prompt and returns whether it did.
  template <class Attach>
  void commit(CachedPages& c, int prompt_tokens, Attach attach) {
    for (const PageCheckpoint& checkpoint : c.planned) {
      if ((checkpoint.page + 1) * kPageTokens >= prompt_tokens) {
        c.latest = checkpoint;
      } else if (!attach(checkpoint)) {
        checkpoints_.give_back(checkpoint.slot);
      }
    }
    c.planned.clear();
    c.state_copies.clear();
  }
  // A checkpoint of the state as it is now, if there is a slot for it.
  template <class Evict>
  std::optional<int> copy(const CachedPages& c, Evict evict) {
    const auto slot = take(evict);
    if (slot) orders_.copy_state(c.state, *slot);
    return slot;
  }
  // Gives back the sequence's slots; attach() as above for the checkpoint of its answer.
  template <class Attach>
  void release(CachedPages& c, Attach attach) {
    for (const PageCheckpoint& checkpoint : c.planned) checkpoints_.give_back(checkpoint.slot);
    if (c.latest && !attach(*c.latest)) checkpoints_.give_back(c.latest->slot);
    if (c.state >= 0) own_.give_back(c.state);
    if (c.undrafted >= 0) own_.give_back(c.undrafted);
    c.planned.clear();
    c.state_copies.clear();
    c.latest.reset();
    c.state = c.undrafted = -1;
  }

 private:
  template <class Evict>
  std::optional<int> take(Evict evict) {
    const auto slot = checkpoints_.take();
    if (slot) return slot;
    evict();
    return checkpoints_.take();
  }
  static bool is_wanted(const CachedPages& c, int pages);
  static void add(CachedPages& c, int page, int row, int slot);

  Orders& orders_;
  SlotPool& checkpoints_;
  SlotPool own_;
  const bool none_;
};

}  // namespace quire
