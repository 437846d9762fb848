#include "engine/cache/sequence_states.h"

#include <algorithm>
#include <cassert>

namespace quire {
namespace {

constexpr size_t kMostWanted = 4;  // prompts in a queue usually part at one or two places

}  // namespace

SequenceStates::SequenceStates(Orders& orders, SlotPool& checkpoints, int own)
    : orders_(orders), checkpoints_(checkpoints), own_(0, own), none_(own == 0) {}

void SequenceStates::prepare(CachedPages& c, int prompt_tokens) const {
  if (none()) return;
  const auto most = static_cast<size_t>(prompt_tokens / kCheckpointEvery + 3) + kMostWanted;
  c.planned.reserve(most);
  c.state_copies.reserve(most);
  c.wanted.reserve(kMostWanted);
}

void SequenceStates::set(CachedPages& c, std::optional<int> from) {
  if (c.state < 0) {
    const auto slot = own_.take();
    assert(slot && "more sequences run than have a state");
    c.state = *slot;
  }
  if (from) orders_.copy_state(*from, c.state);
}

void SequenceStates::plan_return(CachedPages& c, int row) {
  if (c.undrafted < 0) {
    const auto slot = own_.take();
    assert(slot && "drafts need two states for each running sequence");
    c.undrafted = *slot;
  }
  c.state_copies.push_back({row, c.undrafted});
}

bool SequenceStates::is_wanted(const CachedPages& c, int pages) {
  return std::find(c.wanted.begin(), c.wanted.end(), pages) != c.wanted.end();
}

bool SequenceStates::want(CachedPages& c, int pages) {
  if (is_wanted(c, pages)) return true;
  if (c.wanted.size() == kMostWanted) return false;
  c.wanted.push_back(pages);
  return true;
}

void SequenceStates::add(CachedPages& c, int page, int row, int slot) {
  c.planned.push_back({page, slot});
  c.state_copies.push_back({row, slot});
}

}  // namespace quire
