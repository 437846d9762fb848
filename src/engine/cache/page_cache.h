// The units of the KV cache: which sequence holds which, and which are kept for prompts with the same beginning.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/memory.h"
#include "engine/cache/sequence_states.h"
#include "engine/sequence.h"
#include "engine/step/orders.h"
#include "engine/step_costs.h"
#include "kv/page_store.h"
#include "kv/prefix_tree.h"
#include "kv/unit_pool.h"
#include "ops/cache_layout.h"

namespace quire {

struct PageCacheOptions {
  bool prefixes = true;   // keep finished pages for prompts with the same beginning
  int states = 1;         // most states of running sequences: running_states()
  size_t host_bytes = 0;  // host memory of the page store, for evicted units
  std::string directory;  // folder of the page store, to keep units across restarts; empty: none
  size_t disk_bytes = 0;  // size limit of the folder
  std::string identity;   // everything a unit's bytes depend on besides its tokens
};

// States of recurrent layers that running sequences need: with drafts, also those before the drafts of a step.
int running_states(const EngineOptions& options);

PageCacheOptions page_cache_options(const EngineOptions& options, std::string identity = {});

// Finished pages are nodes of a PrefixTree. Evicted units go to the PageStore; with a directory, every unit is written
// there as soon as its page is finished. PageLoader brings stored units back. Used by the engine's thread alone.
//
// A prefix of n pages is a hit if it has what the next token sees: all pages of the groups without a window, the last
// pages of those with one, and a checkpoint of the state after page n - 1 if the model has recurrent layers.
class PageCache {
 public:
  // The orders must outlive the cache. Throws Error if the folder cannot be used or memory is short.
  PageCache(Orders& orders, const CacheShape& shape, const PageCacheOptions& options);

  // Memory that the page store will allocate, outside the KV cache.
  static size_t store_bytes(const PageCacheOptions& options, const CacheLayout& layout);

  const UnitPool& pool() const { return pool_; }
  int available_units() const { return static_cast<int>(pool_.free_units() + pool_.idle_units()); }
  int groups() const { return static_cast<int>(windows_.size()); }
  CacheNeeds needs() const;  // for the scheduler
  // Neither windows nor states: any prefix of a hit is a hit, and so is the beginning of a page.
  bool is_plain() const { return spine_groups_ == groups() && states_.none(); }

  // Must be called once before anything else.
  void begin(Sequence& s) const;
  // Finds the cached and stored pages of a waiting sequence, into s.cached. Cached pages may be evicted and stored ones
  // may disappear before they are taken. Repeated calls start from the last result, so their cost depends on how many
  // pages have come or gone since, not on the prompt's length; with windows or states, on the pages that lack some.
  // `disk_hangs`: do not plan to read from disk.
  void look_up(Sequence& s, const StepCosts& costs, bool disk_hangs);
  // Gives an admitted sequence the cached pages that are still there: sets s.computed and its pages.
  void adopt(Sequence& s);
  // Lets a running sequence skip pages that others have finished meanwhile.
  void advance(Sequence& s);
  // Makes room for `rows` more tokens and `drafts` after them, evicting idle units, and plans the step's checkpoints. The
  // scheduler has checked that there are enough.
  void grow(Sequence& s, int rows, int drafts);
  // Before the step: there are only so many drafts after the `rows` tokens.
  void shrink(Sequence& s, int rows, int drafts) { s.pages.truncate(pool_, s.computed + rows + drafts); }
  // After the step: of its drafts, the first `accepted` were right; gives up the room of the others. A state cannot lose
  // some of its tokens, so it goes back to before the drafts unless all were right. Returns how many accepted drafts the
  // state then lacks: Decoder::advance() adds them.
  int keep_drafts(Sequence& s, int drafts, int accepted);
  // Adds the pages that are full after s.computed tokens to the tree, and releases units that the windows have passed.
  void register_finished(Sequence& s);
  // `other` has the same tokens and no pages yet: it shares all units until one of the two writes to them.
  void share(const Sequence& s, Sequence& other);
  // Takes all units from the sequence, which starts again from the beginning; finished pages stay in the tree.
  void release(Sequence& s);
  // For models with recurrent layers: `other` waits and begins like `first`, which has not computed all of that yet. Then
  // `first` makes a checkpoint where they part, and `other` had better wait for it: returns true.
  bool checkpoint_for(Sequence& first, Sequence& other);
  bool has_states() const { return !states_.none(); }
  // Identifies the content of the page that the prompt fills next (SequenceView::next_page).
  uint64_t next_page(Sequence& s) const;

  // For PageLoader.
  PageStore* store() { return store_.get(); }  // nullptr: none
  const PageKey& key(Sequence& s, int page) const;
  // Appends one page of the prefix of `end` pages that is to be loaded, evicting if needed: units that the tree has and
  // empty ones, which is_empty() tells apart. false: all units are in use.
  bool append_page(Sequence& s, int end);
  // Sets the state to the tree's checkpoint after `end` pages, if there is one. Otherwise returns into how many parts the
  // store cuts a state, and the loader fills the state.
  int begin_state(Sequence& s, int end);
  size_t blob_bytes() const { return blob_bytes_; }  // what the store keeps as one: a unit, or a part of a state
  size_t state_bytes() const { return state_bytes_; }
  bool is_empty(const Sequence& s, int group, int page) const;
  // The units of the first `pages` pages hold their tokens. The rest is given up; if windows need it, everything is.
  void keep_loaded(Sequence& s, int pages);

  void add_stats(EngineStats& stats) const;

 private:
  bool shares(const Sequence& s) const { return options_.prefixes && !s.wants_all_rows(); }
  bool has_spine() const { return spine_groups_ > 0; }
  bool sees(int group, int page, int tokens) const {
    return page >= first_visible_page(windows_[static_cast<size_t>(group)], tokens);
  }
  std::span<const TokenId> page_tokens(const Sequence& s, int page) const;
  PrefixTree::Node find(Sequence& s, int page);
  PrefixTree::Node find_or_insert(Sequence& s, int page);
  void take_over(Sequence& s, int pages);
  void take_tail(Sequence& s);
  void release_behind_windows(Sequence& s, int tokens);
  bool attach_checkpoint(Sequence& s, PageCheckpoint checkpoint);
  void reserve(int units);
  void plan_checkpoints(Sequence& s, int rows);
  void keep(PageKey key, int group, UnitId unit);
  int state_parts() const;
  void keep_checkpoint(PageKey key, int slot);
  void evict_checkpoint();

  // Look-ups (prefix_lookup.cc).
  static constexpr int kSmallestTail = 4;           // tokens of a page that are worth copying
  int first_visible_page_of_any(int tokens) const;  // among the groups with a window
  bool has_window_units(Sequence& s, int page, int end);
  int spine_end(Sequence& s, int from, int limit);
  int longest_hit(Sequence& s, int from, int limit);
  PageStore::Tier find_stored(Sequence& s, int page);
  int idle_units(Sequence& s);
  int units_of(int pages) const;
  void look_up_cached(Sequence& s, int limit);  // limit: pages
  void look_up_stored(Sequence& s, int limit);
  bool is_stored(PageKey blob, int& read, int& disk);
  bool has_stored_windows(Sequence& s, int page, int end, int& read, int& disk);
  bool has_stored_checkpoint(Sequence& s, int page, int& read, int& disk);
  int stored_hit(Sequence& s, int limit, int& read, int& disk);
  void look_up_tail(Sequence& s, int reusable);
  void plan_loads(Sequence& s, const StepCosts& costs, int limit, bool disk_hangs);

  Orders& orders_;
  const size_t unit_bytes_, state_bytes_;
  PageCacheOptions options_;
  std::vector<int> windows_;  // by group; 0, all tokens, first
  int spine_groups_;
  UnitPool pool_;
  SlotPool checkpoints_;
  PrefixTree tree_;
  SequenceStates states_;
  std::unique_ptr<PageStore> store_;
  size_t blob_bytes_;
  std::vector<std::byte> last_part_;  // the last part of a state, padded to a blob
  std::vector<UnitId> page_;          // the units of one page: reused
  uint64_t evicted_ = 0;
};

}  // namespace quire
