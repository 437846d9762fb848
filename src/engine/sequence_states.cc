#include "engine/sequence_states.h"

#include <cassert>

namespace quire {

SequenceStates::SequenceStates(CacheMemory& kv, SlotPool& checkpoints, int sequences)
    : kv_(kv), checkpoints_(checkpoints), own_(0, kv.states() > 0 ? sequences : 0) {}

void SequenceStates::prepare(CachedPages& c, int prompt_tokens) const {
  if (none()) return;
  const auto most = static_cast<size_t>(prompt_tokens / kCheckpointEvery + 2);
  c.planned.reserve(most);
  c.state_copies.reserve(most);
}

void SequenceStates::set(CachedPages& c, std::optional<int> from) {
  if (c.state < 0) {
    const auto slot = own_.take();
    assert(slot && "more sequences run than have a state");
    c.state = *slot;
  }
  if (from) {
    kv_.copy_state(*from, c.state);
  } else {
    kv_.clear_state(c.state);
  }
}

void SequenceStates::add(CachedPages& c, int page, int row, int slot) {
  c.planned.push_back({page, slot});
  c.state_copies.push_back({row, slot});
}

}  // namespace quire
