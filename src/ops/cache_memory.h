// The memory of the cache: units of keys and values, and states of recurrent layers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ops/backend_memory.h"
#include "ops/cache_layout.h"

namespace quire {

// A copy from one unit, or one state, to another.
struct CacheCopy {
  bool of_state;
  int from, to;
};

// Bytes of a unit or of a state.
struct CachePlace {
  bool of_state = false;
  int group = 0;  // of the layout: the one that the unit serves; of a state: 0
  int index = 0;
  size_t offset = 0, size = 0;
};

// Two allocations of a backend. The folder kv/ decides which sequence owns which unit and state. Units and states are given
// as the backend's addresses; the host reads and writes them as places, while no operation uses them.
class CacheMemory {
 public:
  // The backend must outlive it. Throws Error (kResource).
  CacheMemory(Backend& backend, CacheShape shape);

  std::span<std::byte> units_data() const { return {memory_.data(), memory_.size()}; }  // [units][unit_bytes]
  std::span<std::byte> unit(int unit) const;
  std::span<std::byte> state(int index, int slot) const;  // one layer's part
  std::span<std::byte> state(int slot) const;             // all layers'

  void copy(CacheCopy copy) const;
  // to [place.size]
  void read(const CachePlace& place, std::span<std::byte> to) const;
  void write(const CachePlace& place, std::span<const std::byte> bytes) const;

  int units() const { return shape_.units; }
  int states() const { return shape_.states; }
  size_t bytes() const { return memory_.size() + state_memory_.size(); }
  const CacheLayout& layout() const { return shape_.layout; }
  const CacheShape& shape() const { return shape_; }

 private:
  std::span<std::byte> bytes_of(const CachePlace& place) const;

  Backend& backend_;
  CacheShape shape_;
  BackendMemory memory_;        // [units][unit_bytes]
  BackendMemory state_memory_;  // [states][state_bytes]
};

}  // namespace quire
