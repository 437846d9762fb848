#include "kv/page_table.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace quire {

PageTable::PageTable(int groups) : units_(static_cast<size_t>(groups)), first_held_(static_cast<size_t>(groups), 0) {}

PageTable::PageTable(PageTable&& other) noexcept
    : units_(std::exchange(other.units_, {})),
      first_held_(std::exchange(other.first_held_, {})),
      tokens_(std::exchange(other.tokens_, 0)),
      pages_(std::exchange(other.pages_, 0)) {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  assert(pages_ == 0 && "the table assigned to still holds units");
  units_ = std::exchange(other.units_, {});
  first_held_ = std::exchange(other.first_held_, {});
  tokens_ = std::exchange(other.tokens_, 0);
  pages_ = std::exchange(other.pages_, 0);
  return *this;
}

int PageTable::held_units() const {
  int held = 0;
  for (const int first : first_held_) held += pages_ - first;
  return held;
}

int PageTable::units_to_grow(const UnitPool& pool, int new_tokens) const {
  assert(new_tokens >= 0 && new_tokens <= std::numeric_limits<int>::max() - tokens_);
  int needed = (pool.pages_for(tokens_ + new_tokens) - pages_) * groups();
  if (new_tokens == 0 || tokens_ % pool.page_tokens() == 0) return needed;
  for (int group = 0; group < groups(); ++group) needed += pool.shared(unit(group, pages_ - 1));
  return needed;
}

void PageTable::reserve(int pages) {
  const auto size = static_cast<size_t>(pages);
  for (std::vector<int32_t>& table : units_) {
    if (size > table.capacity()) table.reserve(std::max(size, 2 * table.capacity()));
  }
}

bool PageTable::grow(UnitPool& pool, int new_tokens) {
  if (static_cast<uint32_t>(units_to_grow(pool, new_tokens)) > pool.free_units()) return false;
  const int pages = pool.pages_for(tokens_ + new_tokens);
  reserve(pages);  // may throw, so it comes before any change
  for (; pages_ < pages; ++pages_) {
    for (std::vector<int32_t>& table : units_) table.push_back(kernel_unit(*pool.allocate()));
  }
  tokens_ += new_tokens;
  return true;
}

void PageTable::append_shared(UnitPool& pool, std::span<const UnitId> page) {
  assert(tokens_ % pool.page_tokens() == 0 && "a page is shared as a whole");
  assert(page.size() == units_.size());
  reserve(pages_ + 1);  // may throw, so it comes before any change
  for (size_t group = 0; group < page.size(); ++group) {
    units_[group].push_back(kernel_unit(page[group]));
    if (page[group] != kNoUnit) {
      pool.retain(page[group]);
    } else {
      assert(first_held_[group] == pages_ && "a window has no holes");
      ++first_held_[group];
    }
  }
  ++pages_;
  tokens_ += pool.page_tokens();
}

PageTable PageTable::fork(UnitPool& pool) const {
  PageTable other(0);
  other.units_ = units_;
  other.first_held_ = first_held_;
  other.tokens_ = tokens_;
  other.pages_ = pages_;
  for (int group = 0; group < groups(); ++group) {
    for (int page = first_held(group); page < pages_; ++page) pool.retain(unit(group, page));
  }
  return other;
}

std::optional<UnitCopy> PageTable::make_writable(UnitPool& pool, int group, int position) {
  assert(position >= 0 && position < tokens_);
  const int page = position / pool.page_tokens();
  const UnitId old = unit(group, page);
  if (!pool.shared(old)) return std::nullopt;
  const std::optional<UnitId> fresh = pool.allocate();
  assert(fresh && "no unit left for a copy");
  pool.release(old);
  units_[static_cast<size_t>(group)][static_cast<size_t>(page)] = kernel_unit(*fresh);
  return UnitCopy{old, *fresh};
}

void PageTable::replace(UnitPool& pool, int group, int page, UnitId unit) {
  pool.retain(unit);
  int32_t& entry = units_[static_cast<size_t>(group)][static_cast<size_t>(page)];
  pool.release(UnitId{std::exchange(entry, kernel_unit(unit))});
}

void PageTable::release_before(UnitPool& pool, int group, int page) {
  assert(page <= pages_);
  std::vector<int32_t>& table = units_[static_cast<size_t>(group)];
  for (int& first = first_held_[static_cast<size_t>(group)]; first < page; ++first) {
    pool.release(UnitId{std::exchange(table[static_cast<size_t>(first)], kernel_unit(kNoUnit))});
  }
}

void PageTable::truncate(UnitPool& pool, int tokens) {
  assert(tokens >= 0 && tokens <= tokens_);
  const int keep = pool.pages_for(tokens);
  assert((tokens % pool.page_tokens() == 0 || std::ranges::all_of(first_held_, [&](int f) { return f < keep; })) &&
         "the window has not passed the last page");
  for (size_t group = 0; group < units_.size(); ++group) {
    // Last page first, so that the next sequence gets the units in the same order.
    for (int page = pages_; page-- > std::max(keep, first_held_[group]);)
      pool.release(UnitId{units_[group][static_cast<size_t>(page)]});
    units_[group].resize(static_cast<size_t>(keep));
    first_held_[group] = std::min(first_held_[group], keep);
  }
  pages_ = keep;
  tokens_ = tokens;
}

}  // namespace quire
