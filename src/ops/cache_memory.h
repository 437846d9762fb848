// The memory of the cache: units of keys and values, and states of recurrent layers, in the layout that kernels read.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/memory.h"
#include "kernels/kernels.h"
#include "ops/cache_layout.h"

namespace quire {

// A copy from one unit, or one state, to another.
struct CacheCopy {
  bool of_state;
  int from, to;
};

// Two allocations. The folder kv/ decides which sequence owns which unit and state.
class CacheMemory {
 public:
  CacheMemory(CacheLayout layout, int units, int states = 0);

  // Page numbers of this layer's group are units.
  KvLayer layer(int index) const;
  std::span<std::byte> state(int index, int slot) const;  // of one layer

  void copy(CacheCopy copy);
  // From now on copies are appended to `log`, which must outlive this; nullptr: to nothing.
  void log_copies(std::vector<CacheCopy>* log) { log_ = log; }
  std::span<std::byte> unit(int unit) const;
  void clear_state(int slot);
  std::span<std::byte> state(int slot) const;  // of all layers

  int units() const { return units_; }
  int states() const { return states_; }
  size_t bytes() const { return memory_.size() + state_memory_.size(); }
  const CacheLayout& layout() const { return layout_; }

 private:
  CacheLayout layout_;
  int units_, states_;
  LargeBuffer memory_;        // [units][unit_bytes]
  LargeBuffer state_memory_;  // [states][state_bytes]
  std::vector<CacheCopy>* log_ = nullptr;
};

}  // namespace quire
