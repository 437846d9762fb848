// Which pages of the KV cache are in use. Pages are numbers here; their memory is CacheMemory's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace quire {

enum class PageId : uint32_t {};  // index into the pool
constexpr uint32_t index(PageId page) { return static_cast<uint32_t>(page); }
// A page as kernels and CacheMemory take it.
constexpr int32_t kernel_page(PageId page) { return static_cast<int32_t>(page); }

// A fixed number of pages with reference counts. Allocates in the constructor only; every call is O(1). Not
// thread-safe. Using a page without references is a bug (an assertion).
class PagePool {
 public:
  explicit PagePool(uint32_t page_count, int page_tokens = 16);

  // A page with one reference: the one freed last, because its memory is warmest. None when the pool is empty.
  std::optional<PageId> allocate();
  void retain(PageId page);
  // Drops one reference. Returns true if it was the last, so that the page is free.
  bool release(PageId page);

  uint32_t references(PageId page) const;  // 0: free
  bool shared(PageId page) const { return references(page) > 1; }
  uint32_t free_pages() const { return static_cast<uint32_t>(free_.size()); }

  // Marks one of the page's references as the prefix cache's, or removes the mark. A page that only the cache refers to
  // is idle: evicting it makes it free.
  void set_cached(PageId page, bool cached);
  uint32_t users(PageId page) const { return references(page) - cached_[index(page)]; }  // other than the cache
  bool idle(PageId page) const { return references(page) == 1 && cached_[index(page)]; }
  uint32_t idle_pages() const { return idle_; }
  uint32_t page_count() const { return static_cast<uint32_t>(references_.size()); }
  int page_tokens() const { return page_tokens_; }
  // Pages that hold this many tokens.
  int pages_for(int tokens) const { return tokens / page_tokens_ + (tokens % page_tokens_ != 0); }

 private:
  std::vector<uint32_t> references_;
  std::vector<bool> cached_;
  uint32_t idle_ = 0;
  std::vector<PageId> free_;  // a stack
  int page_tokens_;
};

}  // namespace quire
