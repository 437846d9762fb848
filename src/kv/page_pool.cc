#include "kv/page_pool.h"

#include <cassert>
#include <limits>

namespace quire {

PagePool::PagePool(uint32_t page_count, int page_tokens)
    : references_(page_count, 0), cached_(page_count, false), page_tokens_(page_tokens) {
  assert(page_tokens > 0);
  free_.reserve(page_count);
  // Page 0 on top: a young pool fills its memory from the start.
  for (uint32_t page = page_count; page-- > 0;) free_.push_back(PageId{page});
}

std::optional<PageId> PagePool::allocate() {
  if (free_.empty()) return std::nullopt;
  const PageId page = free_.back();
  free_.pop_back();
  references_[index(page)] = 1;
  return page;
}

void PagePool::retain(PageId page) {
  assert(references(page) > 0 && "retains a free page");
  assert(references(page) < std::numeric_limits<uint32_t>::max());
  idle_ -= idle(page);
  ++references_[index(page)];
}

bool PagePool::release(PageId page) {
  assert(references(page) > 0 && "releases a free page");
  assert(!idle(page) && "the cache's own reference: set_cached(page, false) first");
  if (--references_[index(page)] > 0) {
    idle_ += idle(page);
    return false;
  }
  free_.push_back(page);  // within the reserved capacity: does not allocate
  return true;
}

void PagePool::set_cached(PageId page, bool cached) {
  assert(references(page) > 0 && cached_[index(page)] != cached);
  idle_ -= idle(page);
  cached_[index(page)] = cached;
  idle_ += idle(page);
}

uint32_t PagePool::references(PageId page) const {
  assert(index(page) < references_.size());
  return references_[index(page)];
}

}  // namespace quire
