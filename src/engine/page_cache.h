// The pages of the KV cache: who holds which, what is kept for prompts that begin alike, and what is kept outside.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/memory.h"
#include "engine/sequence.h"
#include "engine/step_costs.h"
#include "kernels/kv_memory.h"
#include "kv/page_pool.h"
#include "kv/page_store.h"
#include "kv/prefix_tree.h"

namespace quire {

struct PageCacheOptions {
  bool prefixes = true;   // keep finished pages for prompts that begin alike
  size_t host_bytes = 0;  // of the page store: pages that had to leave the KV cache
  std::string directory;  // and across restarts; empty: none
  size_t disk_bytes = 0;  // of files there
  std::string identity;   // what a page's bytes depend on, beside its tokens
};

PageCacheOptions page_cache_options(const EngineOptions& options, std::string identity = {});

// Used by the engine's thread alone. Finished pages are nodes of a PrefixTree; evicted ones go to the PageStore, and
// with a directory every page is written there as soon as it is finished.
class PageCache {
 public:
  // Throws Error: a folder that cannot be used, memory that cannot be had.
  PageCache(KvMemory& kv, const PageCacheOptions& options);
  ~PageCache();

  // Memory that it takes for its store, outside the KV cache whose pages have that size.
  static size_t store_bytes(const PageCacheOptions& options, size_t page_bytes);

  const PagePool& pool() const { return pool_; }
  int available_pages() const { return static_cast<int>(pool_.free_pages() + pool_.idle_pages()); }

  // Before anything else happens to the sequence.
  void begin(Sequence& s) const;
  // Fills s.cached with what there is for a waiting sequence. What is found in the KV cache stays there until pages are
  // taken; pages of the store may be gone when they are loaded. Asked again, it begins at what it found before: however
  // long the prompt, that takes about as many questions as pages have come or gone.
  void look_up(Sequence& s, const StepCosts& costs);
  // Takes what was found, with references: s.computed and its pages.
  void adopt(Sequence& s);
  // A running sequence skips pages that others have finished meanwhile.
  void advance(Sequence& s);
  // Room for `rows` more tokens; evicts idle pages. The scheduler has made sure that there are enough.
  void grow(Sequence& s, int rows);
  // The first s.computed tokens are in the pages now.
  void register_finished(Sequence& s);
  // `other`, which has nothing yet, has the same past: it shares all pages until one of the two writes.
  void share(const Sequence& s, Sequence& other);
  // The sequence begins anew: its pages are given back, finished ones stay for others.
  void release(Sequence& s);
  // Names the content of the page that the prompt fills next (SequenceView::next_page).
  uint64_t next_page(Sequence& s) const;

  // Asks the store for the pages that look_up found there; until they are there s.cached.loading, but not much longer
  // than computing them would take.
  void start_loads(Sequence& s);
  // Takes in what the store has read; `find` gives a sequence, or nullptr when it is gone.
  void poll_loads(const std::function<Sequence*(SequenceId)>& find);
  // Blocks until there may be something to poll, but not for long.
  void wait_for_loads();

  void add_stats(EngineStats& stats) const;
  // Whether a page is in the tree or in the store was asked so often: what looking up costs.
  uint64_t questions() const { return questions_; }

 private:
  struct Slot {  // of the staging memory: one page that the store reads
    SequenceId id = 0;
    uint32_t epoch = 0;
    int page = 0;
    bool busy = false;
  };

  bool shares(const Sequence& s) const { return options_.prefixes && !s.wants_all_rows(); }
  std::span<const TokenId> page_tokens(const Sequence& s, int page) const;
  const PageKey& key(Sequence& s, int page) const;
  PrefixTree::Node find(Sequence& s, int page);
  PageStore::Tier find_stored(Sequence& s, int page);
  int idle_pages(Sequence& s);
  void look_up_stored(Sequence& s, int most);
  void reserve(int pages);
  void copy(PageCopy copy);
  void keep(PageKey key, PageId page);
  void ask(Sequence& s);
  void stop_waiting(Sequence& s);
  std::span<std::byte> staging(size_t slot) const;

  KvMemory& kv_;
  PageCacheOptions options_;
  PagePool pool_;
  PrefixTree tree_;
  std::unique_ptr<PageStore> store_;
  LargeBuffer staging_;  // [slots + 1][page bytes]; the last for pages that go out
  std::vector<Slot> slots_;
  std::vector<PageStore::Completed> completed_;
  std::vector<SequenceId> loading_;
  int copied_ = 0;     // pages of host memory taken in by this step
  bool late_ = false;  // a load was given up while slots are busy, and none has been given back since: the disk hangs
  uint32_t epoch_ = 0;
  uint64_t evicted_ = 0, loaded_ = 0, questions_ = 0;
};

}  // namespace quire
