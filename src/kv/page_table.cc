#include "kv/page_table.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace quire {

PageTable::PageTable(PageTable&& other) noexcept
    : pages_(std::exchange(other.pages_, {})), tokens_(std::exchange(other.tokens_, 0)) {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  assert(pages_.empty() && "the table assigned to still holds pages");
  pages_ = std::exchange(other.pages_, {});
  tokens_ = std::exchange(other.tokens_, 0);
  return *this;
}

int PageTable::pages_to_grow(const PagePool& pool, int new_tokens) const {
  assert(new_tokens >= 0 && new_tokens <= std::numeric_limits<int>::max() - tokens_);
  const int fresh = pool.pages_for(tokens_ + new_tokens) - static_cast<int>(pages_.size());
  const bool writes_last = new_tokens > 0 && tokens_ % pool.page_tokens() != 0;
  return fresh + (writes_last && pool.shared(pages_.back()) ? 1 : 0);
}

bool PageTable::grow(PagePool& pool, int new_tokens) {
  if (static_cast<uint32_t>(pages_to_grow(pool, new_tokens)) > pool.free_pages()) return false;
  const auto pages = static_cast<size_t>(pool.pages_for(tokens_ + new_tokens));
  // May throw, so it comes before any change.
  if (pages > pages_.capacity()) pages_.reserve(std::max(pages, 2 * pages_.capacity()));
  while (pages_.size() < pages) pages_.push_back(*pool.allocate());
  tokens_ += new_tokens;
  return true;
}

void PageTable::append_shared(PagePool& pool, PageId page) {
  assert(tokens_ % pool.page_tokens() == 0 && "a page is shared as a whole");
  pages_.push_back(page);
  pool.retain(page);
  tokens_ += pool.page_tokens();
}

PageTable PageTable::fork(PagePool& pool) const {
  PageTable other;
  other.pages_ = pages_;
  other.tokens_ = tokens_;
  for (const PageId page : pages_) pool.retain(page);
  return other;
}

std::optional<PageCopy> PageTable::make_writable(PagePool& pool, int position) {
  assert(position >= 0 && position < tokens_);
  PageId& page = pages_[static_cast<size_t>(position / pool.page_tokens())];
  if (!pool.shared(page)) return std::nullopt;
  const std::optional<PageId> fresh = pool.allocate();
  assert(fresh && "no page left for a copy");
  pool.release(page);
  return PageCopy{std::exchange(page, *fresh), *fresh};
}

void PageTable::replace(PagePool& pool, size_t i, PageId page) {
  pool.retain(page);
  pool.release(std::exchange(pages_[i], page));
}

void PageTable::truncate(PagePool& pool, int tokens) {
  assert(tokens >= 0 && tokens <= tokens_);
  // Last page first, so that the next sequence gets the pages in the same order.
  for (const auto keep = static_cast<size_t>(pool.pages_for(tokens)); pages_.size() > keep; pages_.pop_back()) {
    pool.release(pages_.back());
  }
  tokens_ = tokens;
}

}  // namespace quire
