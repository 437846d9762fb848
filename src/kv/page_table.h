// The units that hold a sequence's tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kv/unit_pool.h"

namespace quire {

// The content of `from` is to be copied to `to` before either is written.
struct UnitCopy {
  UnitId from;
  UnitId to;
  bool operator==(const UnitCopy&) const = default;
};

// The units of one sequence: a table per group of layers, by position. Page i holds positions [i * page_tokens,
// (i+1) * page_tokens). A group with a window gives up its first units as the sequence grows. Holds one reference to
// each unit, so it must be released before destruction. All calls must pass the same pool. Moving leaves an empty
// table; only fork() copies.
class PageTable {
 public:
  explicit PageTable(int groups = 1);
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;  // the table assigned to is empty

  int tokens() const { return tokens_; }
  int pages() const { return pages_; }
  int groups() const { return static_cast<int>(units_.size()); }
  // [group][page], as Span takes them; -1: given up.
  std::span<const std::vector<int32_t>> units() const { return units_; }
  UnitId unit(int group, int page) const { return UnitId{table(group)[static_cast<size_t>(page)]}; }  // or kNoUnit
  int first_held(int group) const { return first_held_[static_cast<size_t>(group)]; }
  int held_units() const;

  // Free units needed to append and write `new_tokens`: new pages, plus a copy of the last page if it is shared and
  // gets some of the tokens.
  int units_to_grow(const UnitPool& pool, int new_tokens) const;
  // Appends room for new_tokens. Returns false and changes nothing if the pool has too few units. The first new
  // position may lie in a shared page: call make_writable before writing.
  bool grow(UnitPool& pool, int new_tokens);
  // Makes the next calls allocate no memory up to this many pages.
  void reserve(int pages);
  // Appends a full page that another sequence filled (a prefix hit) and takes references to its units, one per group.
  // kNoUnit: the group's window has passed the page. tokens() must be at a page boundary.
  void append_shared(UnitPool& pool, std::span<const UnitId> page);

  // The table of another sequence with the same tokens; it shares all units.
  PageTable fork(UnitPool& pool) const;
  // Makes the page of `position` writable in one group. If its unit is shared, a fresh one replaces it, and the caller
  // must copy the content. That needs a free unit (an assertion): grow() made sure of one, so call this directly after
  // it.
  std::optional<UnitCopy> make_writable(UnitPool& pool, int group, int position);

  // Replaces a unit by another with the same content and takes a reference to that.
  void replace(UnitPool& pool, int group, int page, UnitId unit);
  // Releases the group's units of the pages before `page`, which its window has passed.
  void release_before(UnitPool& pool, int group, int page);

  // Keeps the first `tokens` tokens, in [0, tokens()], and releases pages that hold none of them. If the last page is
  // kept in part, every group must hold it.
  void truncate(UnitPool& pool, int tokens);
  void release(UnitPool& pool) { truncate(pool, 0); }

 private:
  const std::vector<int32_t>& table(int group) const { return units_[static_cast<size_t>(group)]; }

  std::vector<std::vector<int32_t>> units_;
  std::vector<int> first_held_;  // by group: units before it were given up
  int tokens_ = 0, pages_ = 0;
};

}  // namespace quire
