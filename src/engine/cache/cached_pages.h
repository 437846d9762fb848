// What the page cache and its loader remember about a sequence.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "kv/page_key.h"
#include "kv/prefix_tree.h"
#include "model/batch.h"

namespace quire {

// A load in progress (PageLoader). Page numbers count from the beginning of the sequence.
struct PageLoad {
  bool active = false;
  uint32_t epoch = 0;                           // number of this load; completions of earlier loads are ignored
  int next = 0, end = 0;                        // next page to request, and where to stop
  int next_group = 0;                           // next group of that page to request
  int wanted = 0;                               // `end` at the start
  int shared = 0;                               // pages at the beginning whose spine is the tree's
  int next_part = 0, parts = 0;                 // parts of the checkpoint after the last page
  int pending = 0;                              // requested units and parts that have not arrived
  std::chrono::steady_clock::time_point until;  // units missing then are computed
};

// A copy of the state of the recurrent layers after `page`.
struct PageCheckpoint {
  int page, slot;
};

// What PrefixLookup found for a waiting sequence.
struct PrefixHit {
  int spine = 0;                         // pages whose spine is in the tree; without a spine: all
  int found = 0;                         // pages that the sequence can take from the tree
  int units = 0, idle = 0;               // units that it then holds, and those of them that no sequence uses
  int stored_begin = 0, stored_end = 0;  // pages after `spine` whose spine is in the store
  int stored_on_disk = 0;                // number of those on disk
  int stored_asked = 0;                  // the stored page to check next
  int tail = 0;                          // tokens that can be copied from a page that begins like the one after `found`
  int loads = 0;                         // pages after `found` to read from the store, as far as the tree lacks them
  int load_units = 0;                    // units that they take
  double loads_save = 0;                 // seconds that computing those would take
  bool asked = false;                    // the store has been asked for the prompt's pages
  bool awaits = false;                   // the answer may still come in time
  uint64_t question = 0;                 // PageStore::ask()
  std::chrono::steady_clock::time_point answer_by;
};

// The slots of a sequence's recurrent layers (SequenceStates).
struct RecurrentState {
  int slot = -1;                         // of the sequence's state; -1: nothing is computed
  int undrafted = -1;                    // for its state before the drafts of a step; -1: it has never had drafts
  std::vector<StateCopy> copies;         // in the step being computed
  std::vector<PageCheckpoint> planned;   // the checkpoints that they become
  std::vector<int> wanted;               // pages of the prompt that others wait for, with a checkpoint after them
  std::optional<PageCheckpoint> latest;  // in the answer
};

// Each part is written by the class that it names, the rest by PageCache.
struct CachedPages {
  PageKey root;
  std::vector<PageKey> keys;                  // of the full pages, as far as they were needed: page_key()
  int registered = 0;                         // pages that are in the prefix tree, if they have something to keep
  PrefixTree::Node last = PrefixTree::kNone;  // with a spine: the last of these nodes
  PrefixHit hit;
  RecurrentState state;
  PageLoad load;
};

}  // namespace quire
