// Which pages hold a sequence's tokens.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kv/page_pool.h"

namespace quire {

// The content of `from` is to be copied to `to` before either is written.
struct PageCopy {
  PageId from;
  PageId to;
  bool operator==(const PageCopy&) const = default;
};

// The pages of one sequence in order of position; page i holds positions [i * page_tokens, (i+1) * page_tokens). It
// holds one reference to each and must be released into the pool before it goes. Always the same pool. Moving leaves an
// empty table; copies are made by fork() alone.
class PageTable {
 public:
  PageTable() = default;
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;  // the table assigned to is empty

  int tokens() const { return tokens_; }
  std::span<const PageId> pages() const { return pages_; }

  // The free pages that the pool must have for `new_tokens` to be appended and written: new ones, and a copy of the
  // last page if that is shared and gets some of them.
  int pages_to_grow(const PagePool& pool, int new_tokens) const;
  // Appends room for new_tokens, all or nothing: false when the pool has too few pages (then nothing changed). The
  // first new position may lie in a shared page: make_writable before writing.
  bool grow(PagePool& pool, int new_tokens);
  // Appends a full page that someone else filled (a prefix hit): takes a reference. tokens() is at a page boundary.
  void append_shared(PagePool& pool, PageId page);

  // Another sequence with the same past: shares all pages.
  PageTable fork(PagePool& pool) const;
  // The page of `position` may be written afterwards. When it is shared, a fresh page takes its place, and its content
  // must be copied. A shared page takes a free one of the pool (an assertion); after grow() one is there (pages_to_grow
  // counted it) until someone else takes it, so call both together.
  std::optional<PageCopy> make_writable(PagePool& pool, int position);

  // Page `i` is dropped for another with the same content: takes a reference to that.
  void replace(PagePool& pool, size_t i, PageId page);

  // Keeps the first `tokens` tokens, tokens in [0, tokens()], and releases the pages that hold none of them.
  void truncate(PagePool& pool, int tokens);
  void release(PagePool& pool) { truncate(pool, 0); }

 private:
  std::vector<PageId> pages_;
  int tokens_ = 0;
};

}  // namespace quire
