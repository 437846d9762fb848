// The pages that belong to no sequence alone: the units of the KV cache, the tree of finished pages, and the store of
// evicted ones.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/cache/page_keys.h"
#include "engine/step/orders.h"
#include "kv/page_store.h"
#include "kv/prefix_tree.h"
#include "kv/slot_pool.h"
#include "kv/unit_pool.h"
#include "ops/cache_layout.h"

namespace quire {

struct PageCacheOptions {
  bool prefixes = true;   // keep finished pages for prompts with the same beginning
  int states = 1;         // most states of running sequences: running_states()
  size_t host_bytes = 0;  // host memory of the page store, for evicted units
  std::string directory;  // folder of the page store, to keep units across restarts; empty: none
  size_t disk_bytes = 0;  // size limit of the folder, or of a shared one
  std::string shared;     // URL of a tier that replicas share (shared_tier.h), in place of the folder; empty: none
  std::string identity;   // everything a unit's bytes depend on besides its tokens
  std::shared_ptr<PageObserver> observer = {};  // hears of nodes that come and go; empty: nobody
};

// Finished pages are nodes of a PrefixTree. Evicted units go to the PageStore; with a directory or a shared tier, every unit is
// written there as soon as its page is finished.
//
// A prefix of n pages is a hit if it has what the next token sees: all pages of the groups without a window, the last
// pages of those with one, and a checkpoint of the state after page n - 1 if the model has recurrent layers.
class SharedPages {
 public:
  // The orders must outlive it. Throws Error if the folder cannot be used or memory is short.
  SharedPages(Orders& orders, const CacheShape& shape, const PageCacheOptions& options);
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  // Memory that the page store will allocate, outside the KV cache.
  static size_t store_bytes(const PageCacheOptions& options, const CacheLayout& layout);

  // ---- What the model keeps of a page

  std::span<const int> windows() const { return windows_; }  // by group; 0, all tokens, first
  int groups() const { return static_cast<int>(windows_.size()); }
  int spine_groups() const { return spine_groups_; }
  bool has_spine() const { return spine_groups_ > 0; }
  bool has_states() const { return has_states_; }
  // Neither windows nor states: any prefix of a hit is a hit, and so is the beginning of a page.
  bool is_plain() const { return spine_groups_ == groups() && !has_states_; }
  // Whether the token after `tokens` tokens sees the group's units of this page.
  bool sees(int group, int page, int tokens) const {
    return page >= first_visible_page(windows_[static_cast<size_t>(group)], tokens);
  }
  // The first page that it sees through the largest window; without one, the page that it is in.
  int first_windowed_page(int tokens) const;

  // ---- Which pages there are

  // Whether the sequence may take pages from here and leave its own.
  bool serves(const Sequence& s) const { return options_.prefixes && !s.wants_all_rows(); }
  bool keeps_pages() const { return options_.prefixes; }  // otherwise it serves nobody
  PrefixTree::Node find(Sequence& s, int page) const { return tree_.find(page_key(s, page), page_tokens(s, page)); }
  PrefixTree& tree() { return tree_; }
  const PrefixTree& tree() const { return tree_; }
  // Adds the sequence's finished page, which the tree lacks, with these units, after the node `parent`.
  PrefixTree::Node insert(Sequence& s, PrefixTree::Node parent, int page, std::span<const UnitId> units);
  UnitPool& pool() { return pool_; }
  const UnitPool& pool() const { return pool_; }
  SlotPool& checkpoints() { return checkpoints_; }
  PageStore* store() const { return store_.get(); }  // nullptr: none
  size_t blob_bytes() const { return blob_bytes_; }  // what the store keeps as one: a unit, or a part of a state
  size_t state_bytes() const { return state_bytes_; }
  int state_parts() const;  // blobs of a state
  const std::string& identity() const { return options_.identity; }

  // ---- Memory

  int available_units() const { return static_cast<int>(pool_.free_units() + pool_.idle_units()); }
  // Frees idle units until so many are free; there must be as many available.
  void reserve(int units);
  void evict_checkpoint();
  // Units and checkpoints go to the store when they are evicted; if it has a folder or a shared tier, as soon as they are
  // finished. Where passes run apart, both are brought to the host while a pass runs, which uses none of them.
  //
  // What the node holds is finished.
  void keep_finished(PrefixTree::Node node);
  // Stores the nodes that keep_finished() was given.
  void store_finished();
  // Stores the units that would be evicted next, until `units` are free or stored, or the time is over.
  void store_ahead(int units, Clock::time_point until);

  void add_stats(EngineStats& stats) const;
  // Those of the store, whose thread works also while no step runs. Thread-safe.
  void add_store_stats(EngineStats& stats) const;

 private:
  // Write what the store lacks.
  void store_unit(PageKey key, int group, UnitId unit);
  void store_checkpoint(PageKey key, int slot);
  void store_node(PrefixTree::Node node);
  bool is_stored(PageKey blob) const { return store_->find(blob) != PageStore::Tier::kNone; }

  Orders& orders_;
  const PageCacheOptions options_;
  const size_t unit_bytes_, state_bytes_, blob_bytes_;
  const std::vector<int> windows_;
  const int spine_groups_;
  const bool has_states_;
  UnitPool pool_;
  SlotPool checkpoints_;
  PrefixTree tree_;
  std::unique_ptr<PageStore> store_;
  std::vector<PageKey> finished_;  // of the nodes that store_finished() will store
  uint64_t evicted_ = 0, stored_ahead_ = 0;
};

}  // namespace quire
