// What the page cache and its loader remember about a sequence.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "kv/page_key.h"
#include "kv/prefix_tree.h"

namespace quire {

// A load in progress (PageLoader). Page numbers count from the beginning of the sequence.
struct PageLoad {
  bool active = false;
  uint32_t epoch = 0;                           // of this load; completions of earlier ones are ignored
  int next = 0, end = 0;                        // next page to request, and where to stop
  int pending = 0;                              // requested pages that have not arrived
  std::chrono::steady_clock::time_point until;  // pages missing then are computed
};

// Filled by PageCache; nobody else writes to it.
struct CachedPages {
  PageKey root;
  std::vector<PageKey> keys;                  // of the full pages, as far as they were needed
  int registered = 0;                         // pages that are nodes of the prefix tree
  PrefixTree::Node last = PrefixTree::kNone;  // the last of these nodes

  // Result of look_up for a waiting sequence.
  int found = 0, idle = 0;               // pages in the tree, and those of them that no sequence uses
  int stored_begin = 0, stored_end = 0;  // following pages that the store has
  int stored_on_disk = 0;                // number of those on disk
  int stored_asked = 0;                  // the stored page to check next
  int tail = 0;                          // tokens that can be copied from a page that begins like the one after `found`
  int loads = 0;                         // pages after `found` to read from the store
  double loads_save = 0;                 // seconds that computing those would take

  PageLoad load;
};

}  // namespace quire
