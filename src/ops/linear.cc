#include "ops/linear.h"

#include <algorithm>
#include <cassert>

namespace quire {

const Inputs::Entry& Inputs::of(Activations form, const Linear& w) const {
  if (count_ == 1) return assert(entries_[0].form == form), entries_[0];
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& e) { return e.data && e.form == form && e.transform == w.transform.get(); });
  assert(found != entries_.end());
  return *found;
}

const Inputs::Entry* Inputs::add(const Entry& entry) {
  for (size_t i = 0; i < count_; ++i)
    if (entries_[i].form == entry.form && entries_[i].transform == entry.transform) return nullptr;
  assert(count_ < kMost);
  entries_[count_] = entry;
  return &entries_[count_++];
}

Inputs Inputs::from_row(int row) const {
  Inputs from = *this;
  for (size_t i = 0; i < count_; ++i) from.entries_[i].data += static_cast<size_t>(row) * from.entries_[i].stride;
  return from;
}

}  // namespace quire
