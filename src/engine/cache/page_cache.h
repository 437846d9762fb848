// The pages of sequences: which units each holds, what it takes from the shared pages, and what it leaves there.
#pragma once

#include <string>
#include <vector>

#include "engine/cache/prefix_lookup.h"
#include "engine/cache/sequence_states.h"
#include "engine/cache/shared_pages.h"

namespace quire {

// States of recurrent layers that running sequences need: with drafts, also those before the drafts of a step.
int running_states(const EngineOptions& options);

PageCacheOptions page_cache_options(const EngineOptions& options, std::string identity = {});

// Moves units between sequences and the SharedPages, which it owns. PrefixLookup says what a waiting sequence can take,
// SequenceStates has the states of recurrent layers, and PageLoader brings stored units back. Used by the engine's thread
// alone.
class PageCache {
 public:
  // The orders must outlive the cache. Throws Error if the folder cannot be used or memory is short.
  PageCache(Orders& orders, const CacheShape& shape, const PageCacheOptions& options);

  SharedPages& shared() { return shared_; }
  const SharedPages& shared() const { return shared_; }
  CacheNeeds needs() const;  // for the scheduler

  // Must be called once before anything else.
  void begin(Sequence& s) const;
  // PrefixLookup::look_up().
  void look_up(Sequence& s, const StepCosts& costs, bool disk_hangs) { lookup_.look_up(s, costs, disk_hangs); }
  // Gives an admitted sequence the cached pages that are still there: sets s.computed and its pages.
  void adopt(Sequence& s);
  // Lets a running sequence skip pages that others have finished meanwhile.
  void advance(Sequence& s);
  // Makes room for `rows` more tokens and `drafts` after them, evicting idle units, and plans the step's checkpoints. The
  // scheduler has checked that there are enough.
  void grow(Sequence& s, int rows, int drafts);
  // Before the step: there are only so many drafts after the `rows` tokens.
  void shrink(Sequence& s, int rows, int drafts) { s.pages.truncate(shared_.pool(), s.computed + rows + drafts); }
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
  // Identifies the content of the page that the prompt fills next (SequenceView::next_page).
  uint64_t next_page(Sequence& s) const;

  // For PageLoader.
  // Appends one page of the prefix of `end` pages that is to be loaded, evicting if needed: units that the tree has and
  // empty ones, which is_empty() tells apart. false: all units are in use.
  bool append_page(Sequence& s, int end);
  // Sets the state to the tree's checkpoint after `end` pages, if there is one. Otherwise returns into how many parts the
  // store cuts a state, and the loader fills the state.
  int begin_state(Sequence& s, int end);
  bool is_empty(const Sequence& s, int group, int page) const;
  // The units of the first `pages` pages hold their tokens. The rest is given up; if windows need it, everything is.
  void keep_loaded(Sequence& s, int pages);

 private:
  PrefixTree::Node find_or_insert(Sequence& s, int page);
  void take_over(Sequence& s, int pages);
  void take_tail(Sequence& s);
  void release_behind_windows(Sequence& s, int tokens);
  bool attach_checkpoint(Sequence& s, PageCheckpoint checkpoint);
  void plan_checkpoints(Sequence& s, int rows);

  Orders& orders_;
  SharedPages shared_;
  const PrefixLookup lookup_;
  SequenceStates states_;
  std::vector<UnitId> page_;  // the units of one page: reused
};

}  // namespace quire
