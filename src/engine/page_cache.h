// The pages of the KV cache: which sequence holds which, and which are kept for prompts with the same beginning.
#pragma once

#include <memory>
#include <string>

#include "base/memory.h"
#include "engine/sequence.h"
#include "engine/step_costs.h"
#include "kv/page_pool.h"
#include "kv/page_store.h"
#include "kv/prefix_tree.h"
#include "ops/cache_memory.h"

namespace quire {

struct PageCacheOptions {
  bool prefixes = true;   // keep finished pages for prompts with the same beginning
  size_t host_bytes = 0;  // host memory of the page store, for evicted pages
  std::string directory;  // folder of the page store, to keep pages across restarts; empty: none
  size_t disk_bytes = 0;  // size limit of the folder
  std::string identity;   // everything a page's bytes depend on besides its tokens
};

PageCacheOptions page_cache_options(const EngineOptions& options, std::string identity = {});

// Finished pages are nodes of a PrefixTree. Evicted pages go to the PageStore; with a directory, every page is written
// there as soon as it is finished. PageLoader brings stored pages back. Used by the engine's thread alone.
class PageCache {
 public:
  // Throws Error if the folder cannot be used or memory is short.
  PageCache(CacheMemory& kv, const PageCacheOptions& options);

  // Memory that the page store will allocate, outside the KV cache.
  static size_t store_bytes(const PageCacheOptions& options, size_t page_bytes);

  const PagePool& pool() const { return pool_; }
  int available_pages() const { return static_cast<int>(pool_.free_pages() + pool_.idle_pages()); }

  // Must be called once before anything else.
  void begin(Sequence& s) const;
  // Finds the cached and stored pages of a waiting sequence, into s.cached. Cached pages may be evicted and stored ones
  // may disappear before they are taken. Repeated calls start from the last result, so their cost depends on how many
  // pages have come or gone since, not on the prompt's length. `disk_hangs`: do not plan to read from disk.
  void look_up(Sequence& s, const StepCosts& costs, bool disk_hangs);
  // Gives an admitted sequence the cached pages that are still there: sets s.computed and its pages.
  void adopt(Sequence& s);
  // Lets a running sequence skip pages that others have finished meanwhile.
  void advance(Sequence& s);
  // Makes room for `rows` more tokens, evicting idle pages. The scheduler has checked that there are enough.
  void grow(Sequence& s, int rows);
  // Adds the pages filled by the first s.computed tokens to the tree.
  void register_finished(Sequence& s);
  // `other` has the same tokens and no pages yet: it shares all pages until one of the two writes to them.
  void share(const Sequence& s, Sequence& other);
  // Takes all pages from the sequence, which starts again from the beginning; finished pages stay in the tree.
  void release(Sequence& s);
  // Identifies the content of the page that the prompt fills next (SequenceView::next_page).
  uint64_t next_page(Sequence& s) const;

  // For PageLoader.
  PageStore* store() { return store_.get(); }  // nullptr: none
  const PageKey& key(Sequence& s, int page) const;
  bool append_page(Sequence& s);             // one empty page, evicting if needed; false: all pages are in use
  void keep_loaded(Sequence& s, int pages);  // the first `pages` pages hold their tokens; the rest is given up

  void add_stats(EngineStats& stats) const;

 private:
  bool shares(const Sequence& s) const { return options_.prefixes && !s.wants_all_rows(); }
  std::span<const TokenId> page_tokens(const Sequence& s, int page) const;
  PrefixTree::Node find(Sequence& s, int page);
  PageStore::Tier find_stored(Sequence& s, int page);
  int idle_pages(Sequence& s);
  void look_up_cached(Sequence& s, int limit);  // limit: pages
  void look_up_stored(Sequence& s, int limit);
  void look_up_tail(Sequence& s, int reusable);
  void plan_loads(Sequence& s, const StepCosts& costs, bool disk_hangs) const;
  void reserve(int pages);
  void copy(PageCopy copy);
  void keep(PageKey key, PageId page);

  CacheMemory& kv_;
  PageCacheOptions options_;
  PagePool pool_;
  PrefixTree tree_;
  std::unique_ptr<PageStore> store_;
  uint64_t evicted_ = 0;
};

}  // namespace quire
