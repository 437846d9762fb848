#include "engine/cache/sequence_states.h"

#include <algorithm>
#include <cassert>

namespace quire {
namespace {

constexpr size_t kMostWanted = 4;  // prompts in a queue usually part at one or two places

}  // namespace

SequenceStates::SequenceStates(Orders& orders, SlotPool& checkpoints, int own)
    : orders_(orders), checkpoints_(checkpoints), own_(0, own), none_(own == 0) {}

void SequenceStates::prepare(RecurrentState& r, int prompt_tokens) const {
  if (none()) return;
  const auto most = static_cast<size_t>(prompt_tokens / kCheckpointEvery + 3) + kMostWanted;
  r.planned.reserve(most);
  r.copies.reserve(most);
  r.wanted.reserve(kMostWanted);
}

void SequenceStates::set(RecurrentState& r, std::optional<int> from) {
  if (r.slot < 0) {
    const auto slot = own_.take();
    assert(slot && "more sequences run than have a state");
    r.slot = *slot;
  }
  if (from) orders_.copy_state(*from, r.slot);
}

void SequenceStates::plan_return(RecurrentState& r, int row) {
  if (r.undrafted < 0) {
    const auto slot = own_.take();
    assert(slot && "drafts need two states for each running sequence");
    r.undrafted = *slot;
  }
  r.copies.push_back({row, r.undrafted});
}

bool SequenceStates::is_wanted(const RecurrentState& r, int pages) {
  return std::find(r.wanted.begin(), r.wanted.end(), pages) != r.wanted.end();
}

bool SequenceStates::want(RecurrentState& r, int pages) {
  if (is_wanted(r, pages)) return true;
  if (r.wanted.size() == kMostWanted) return false;
  r.wanted.push_back(pages);
  return true;
}

void SequenceStates::add(RecurrentState& r, int page, int row, int slot) {
  r.planned.push_back({page, slot});
  r.copies.push_back({row, slot});
}

}  // namespace quire
