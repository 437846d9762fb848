// A hash table of ids whose values live elsewhere: each distinct value gets one id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::grammar {

inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

class IdTable {
 public:
  // The id for which equal(id) holds, among those with this hash; otherwise the id that make() returns, which is added.
  uint32_t intern(uint64_t hash, auto&& equal, auto&& make) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    size_t at = hash & (slots_.size() - 1);
    for (; slots_[at].id != kFree; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].hash == static_cast<uint32_t>(hash >> 32) && equal(slots_[at].id)) return slots_[at].id;
    }
    const uint32_t id = make();  // may throw, but does not touch this table
    slots_[at] = {id, static_cast<uint32_t>(hash >> 32), hash};
    ++count_;
    return id;
  }
  size_t memory() const { return slots_.capacity() * sizeof(Slot); }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  struct Slot {
    uint32_t id = kFree;
    uint32_t hash = 0;
    uint64_t full = 0;
  };

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id == kFree) continue;
      size_t at = slot.full & (slots_.size() - 1);
      while (slots_[at].id != kFree) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace quire::grammar
