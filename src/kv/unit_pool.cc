#include "kv/unit_pool.h"

#include <cassert>
#include <limits>

namespace quire {

UnitPool::UnitPool(uint32_t unit_count, int page_tokens)
    : references_(unit_count, 0), kept_(unit_count, Kept::kNot), page_tokens_(page_tokens) {
  assert(page_tokens > 0);
  free_.reserve(unit_count);
  // Unit 0 on top: a young pool fills its memory from the start.
  for (uint32_t unit = unit_count; unit-- > 0;) free_.push_back(UnitId{static_cast<int32_t>(unit)});
}

std::optional<UnitId> UnitPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const UnitId unit = free_.back();
  free_.pop_back();
  references_[index(unit)] = 1;
  return unit;
}

void UnitPool::retain(UnitId unit) {
  assert(references(unit) > 0 && "retains a free unit");
  assert(references(unit) < std::numeric_limits<uint32_t>::max());
  idle_like(unit) -= idle(unit);
  ++references_[index(unit)];
}

bool UnitPool::release(UnitId unit) {
  assert(references(unit) > 0 && "releases a free unit");
  assert(!idle(unit) && "the cache's own reference: set_kept(unit, Kept::kNot) first");
  if (--references_[index(unit)] > 0) {
    idle_like(unit) += idle(unit);
    return false;
  }
  free_.push_back(unit);  // within the reserved capacity: does not allocate
  return true;
}

void UnitPool::set_kept(UnitId unit, Kept kept) {
  assert(references(unit) > 0 && this->kept(unit) != (kept != Kept::kNot));
  idle_like(unit) -= idle(unit);
  kept_[index(unit)] = kept;
  idle_like(unit) += idle(unit);
}

uint32_t UnitPool::references(UnitId unit) const {
  assert(index(unit) < references_.size());
  return references_[index(unit)];
}

}  // namespace quire
