// The memory of the cache: units of keys and values, and states of recurrent layers, in the layout that kernels read.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/memory.h"
#include "ops/cache_layout.h"

namespace quire {

struct KvLayer;  // kernels/kernels.h

// A copy from one unit, or one state, to another.
struct CacheCopy {
  bool of_state;
  int from, to;
};

// Two allocations. The folder kv/ decides which sequence owns which unit and state.
class CacheMemory {
 public:
  explicit CacheMemory(CacheShape shape);
  CacheMemory(CacheLayout layout, int units, int states = 0)
      : CacheMemory(CacheShape{std::move(layout), units, states}) {}

  // Page numbers of this layer's group are units.
  KvLayer layer(int index) const;
  std::span<std::byte> state(int index, int slot) const;  // of one layer

  void copy(CacheCopy copy) const;
  std::span<std::byte> unit(int unit) const;
  void clear_state(int slot) const;
  std::span<std::byte> state(int slot) const;  // of all layers

  int units() const { return shape_.units; }
  int states() const { return shape_.states; }
  size_t bytes() const { return memory_.size() + state_memory_.size(); }
  const CacheLayout& layout() const { return shape_.layout; }
  const CacheShape& shape() const { return shape_; }

 private:
  CacheShape shape_;
  LargeBuffer memory_;        // [units][unit_bytes]
  LargeBuffer state_memory_;  // [states][state_bytes]
};

}  // namespace quire
