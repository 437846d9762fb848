// Which units of the KV cache are in use. Units are numbers here; their memory is CacheMemory's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace quire {

// A unit holds a page of tokens for one group of layers (ops/cache_layout.h).
enum class UnitId : int32_t {};  // index into the pool
inline constexpr UnitId kNoUnit{-1};
constexpr size_t index(UnitId unit) { return static_cast<size_t>(unit); }
// A unit as kernels and CacheMemory take it.
constexpr int32_t kernel_unit(UnitId unit) { return static_cast<int32_t>(unit); }

// What the prefix cache keeps a unit for.
enum class Kept : uint8_t {
  kNot,
  kSpine,   // a page of a group that keeps all tokens
  kWindow,  // a page of a group that keeps a window
};

// A fixed number of units with reference counts. Allocates in the constructor only; every call is O(1). Not
// thread-safe. Using a unit without references is a bug (an assertion).
class UnitPool {
 public:
  explicit UnitPool(uint32_t unit_count, int page_tokens = 16);

  // A unit with one reference: the one freed last, because its memory is warmest. None when the pool is empty.
  std::optional<UnitId> allocate();
  void retain(UnitId unit);
  // Drops one reference. Returns true if it was the last, so that the unit is free.
  bool release(UnitId unit);

  uint32_t references(UnitId unit) const;  // 0: free
  bool shared(UnitId unit) const { return references(unit) > 1; }
  uint32_t free_units() const { return static_cast<uint32_t>(free_.size()); }

  // Marks one of the unit's references as the prefix cache's, or removes the mark. A unit that only the cache refers to
  // is idle: evicting it makes it free.
  void set_kept(UnitId unit, Kept kept);
  bool kept(UnitId unit) const { return kept_[index(unit)] != Kept::kNot; }
  uint32_t users(UnitId unit) const { return references(unit) - kept(unit); }  // other than the cache
  bool idle(UnitId unit) const { return references(unit) == 1 && kept(unit); }
  uint32_t idle_units(Kept kept) const { return idle_[static_cast<size_t>(kept)]; }
  uint32_t idle_units() const { return idle_units(Kept::kSpine) + idle_units(Kept::kWindow); }
  uint32_t unit_count() const { return static_cast<uint32_t>(references_.size()); }
  int page_tokens() const { return page_tokens_; }
  // Pages that hold this many tokens.
  int pages_for(int tokens) const { return tokens / page_tokens_ + (tokens % page_tokens_ != 0); }

 private:
  uint32_t& idle_like(UnitId unit) { return idle_[static_cast<size_t>(kept_[index(unit)])]; }

  std::vector<uint32_t> references_;
  std::vector<Kept> kept_;
  std::array<uint32_t, 3> idle_{};  // by Kept
  std::vector<UnitId> free_;        // a stack
  int page_tokens_;
};

}  // namespace quire
