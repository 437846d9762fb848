// The pages that hold a sequence's tokens.
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

// The pages of one sequence by position; page i holds positions [i * page_tokens, (i+1) * page_tokens). Holds one
// reference to each page, so it must be released before destruction. All calls must pass the same pool. Moving leaves
// an empty table; only fork() copies.
class PageTable {
 public:
  PageTable() = default;
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;  // the table assigned to is empty

  int tokens() const { return tokens_; }
  std::span<const PageId> pages() const { return pages_; }

  // Free pages needed to append and write `new_tokens`: new pages, plus a copy of the last page if it is shared and
  // gets some of the tokens.
  int pages_to_grow(const PagePool& pool, int new_tokens) const;
  // Appends room for new_tokens. Returns false and changes nothing if the pool has too few pages. The first new
  // position may lie in a shared page: call make_writable before writing.
  bool grow(PagePool& pool, int new_tokens);
  // Appends a full page that another sequence filled (a prefix hit) and takes a reference to it. tokens() must be at a
  // page boundary.
  void append_shared(PagePool& pool, PageId page);

  // The table of another sequence with the same tokens; it shares all pages.
  PageTable fork(PagePool& pool) const;
  // Makes the page of `position` writable. If it is shared, a fresh page replaces it, and the caller must copy the
  // content. That needs a free page (an assertion): grow() made sure of one, so call this directly after it.
  std::optional<PageCopy> make_writable(PagePool& pool, int position);

  // Replaces page `i` by another with the same content and takes a reference to that.
  void replace(PagePool& pool, size_t i, PageId page);

  // Keeps the first `tokens` tokens, in [0, tokens()], and releases pages that hold none of them.
  void truncate(PagePool& pool, int tokens);
  void release(PagePool& pool) { truncate(pool, 0); }

 private:
  std::vector<PageId> pages_;
  int tokens_ = 0;
};

}  // namespace quire
