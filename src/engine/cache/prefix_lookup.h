// What the prefix tree and the page store have of a prompt.
#pragma once

#include "engine/cache/shared_pages.h"
#include "engine/step_costs.h"

namespace quire {

// Writes Sequence::cached.hit and nothing else. Used by the engine's thread alone.
class PrefixLookup {
 public:
  static constexpr int kSmallestTail = 4;  // tokens of a page that are worth copying

  explicit PrefixLookup(const SharedPages& shared);

  // Finds the cached and stored pages of a waiting sequence. Cached pages may be evicted and stored ones may disappear
  // before they are taken. Repeated calls start from the last result, so their cost depends on how many pages have come or
  // gone since, not on the prompt's length; with windows or states, on the pages that lack some. `disk_hangs`: do not plan
  // to read from disk. If replicas share a tier of the store, it is asked first, and until it has answered, but only for a
  // moment, hit.awaits is set and nothing of the store is found.
  void look_up(Sequence& s, const StepCosts& costs, bool disk_hangs) const;

  // The longest hit of at most `limit` pages in the tree, for a sequence that has the first `from` pages.
  int longest_hit(Sequence& s, int from, int limit) const;

 private:
  int spine_end(Sequence& s, int from, int limit) const;
  int longest_hit_of_spine(Sequence& s, int from, int limit) const;
  bool has_window_units(Sequence& s, int page, int end) const;
  PageStore::Tier find_stored(Sequence& s, int page) const;
  int idle_units(Sequence& s) const;
  int units_of(int pages) const;
  void look_up_cached(Sequence& s, int limit) const;  // limit: pages
  void look_up_stored(Sequence& s, int limit) const;
  void look_up_tail(Sequence& s, int reusable) const;

  void collect_keys(Sequence& s, int pages) const;
  void ask(Sequence& s, const StepCosts& costs, int limit) const;

  struct Reads {  // blobs of the store
    int all = 0, on_disk = 0;
  };
  bool is_stored(PageKey blob, Reads& reads) const;
  bool has_stored_windows(Sequence& s, int page, int end, Reads& reads) const;
  bool has_stored_checkpoint(Sequence& s, int page, Reads& reads) const;
  int stored_hit(Sequence& s, int limit, Reads& reads) const;
  void plan_loads(Sequence& s, const StepCosts& costs, int limit, bool disk_hangs) const;

  const SharedPages& shared_;
  mutable std::vector<PageKey> asked_;  // of one question: reused, so that no step allocates
};

}  // namespace quire
