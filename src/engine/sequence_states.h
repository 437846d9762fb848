// The states of recurrent layers: one per running sequence, and checkpoints that the prefix tree keeps.
#pragma once

#include <optional>

#include "engine/cached_pages.h"
#include "kv/slot_pool.h"
#include "ops/cache_memory.h"

namespace quire {

// A prefix hit needs the state after its last token. So the state is copied to a checkpoint
//   - after the last full page that a request with the same prompt can take over,
//   - after every kCheckpointEvery tokens of longer prompts, for prompts that diverge,
//   - after each page of an answer, always to the same slot; it is kept when the answer ends, for the next turn.
// If no slot is free, the least recently used checkpoint goes; if there is none either, no copy is made.
class SequenceStates {
 public:
  static constexpr int kCheckpointEvery = 1024;  // tokens

  // The first `sequences` slots of `kv` are for running sequences, `checkpoints` has the others.
  SequenceStates(CacheMemory& kv, PrefixTree& tree, SlotPool& checkpoints, int sequences);

  bool none() const { return kv_.states() == 0; }  // the model has no recurrent layers
  // Reserves memory for the sequence's plans.
  void prepare(CachedPages& c, int prompt_tokens) const;
  // Sets the sequence's state to a checkpoint's or another sequence's, or to the empty one.
  void set(CachedPages& c, std::optional<int> from);
  // Plans the checkpoints of a step that computes tokens [from, to): sets c.state_copies. has(page): there is one.
  template <class Has>
  void plan(CachedPages& c, int from, int to, int prompt_tokens, Has has) {
    for (int end = (from / kPageTokens + 1) * kPageTokens; end <= to; end += kPageTokens) {
      const bool last_of_prompt = end == (prompt_tokens - 1) / kPageTokens * kPageTokens;
      const bool answer = end >= prompt_tokens && end + kPageTokens > to;
      if (!answer && !last_of_prompt && (end >= prompt_tokens || end % kCheckpointEvery != 0)) continue;
      if (!has(end / kPageTokens - 1)) add(c, end, end - from - 1, answer);
    }
  }
  // The step is computed: attach(page, slot) takes over each planned checkpoint of the prompt and returns whether it did.
  template <class Attach>
  void commit(CachedPages& c, int prompt_tokens, Attach attach) {
    for (const StateCheckpoint& checkpoint : c.planned) {
      if ((checkpoint.page + 1) * kPageTokens >= prompt_tokens) {
        c.latest = checkpoint;
      } else if (!attach(checkpoint)) {
        checkpoints_.give_back(checkpoint.slot);
      }
    }
    c.planned.clear();
    c.state_copies.clear();
  }
  // Gives back the sequence's slots; attach() as above for the checkpoint of its answer.
  template <class Attach>
  void release(CachedPages& c, Attach attach) {
    for (const StateCheckpoint& checkpoint : c.planned) checkpoints_.give_back(checkpoint.slot);
    if (c.latest && !attach(*c.latest)) checkpoints_.give_back(c.latest->slot);
    if (c.state >= 0) own_.give_back(c.state);
    c.planned.clear();
    c.state_copies.clear();
    c.latest.reset();
    c.state = -1;
  }

 private:
  void add(CachedPages& c, int end, int row, bool answer);

  CacheMemory& kv_;
  PrefixTree& tree_;
  SlotPool& checkpoints_;
  SlotPool own_;
};

}  // namespace quire
