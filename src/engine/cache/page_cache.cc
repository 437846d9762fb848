#include "engine/cache/page_cache.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "engine/drafting/drafter_kinds.h"

namespace quire {
namespace {

constexpr int kWorthWaiting = 4;  // common pages that a prompt waits for another to compute

}  // namespace

int running_states(const EngineOptions& o) { return o.max_num_seqs * (speculates(o) ? 2 : 1); }

PageCacheOptions page_cache_options(const EngineOptions& o, std::string identity) {
  return {.prefixes = o.prefix_cache && o.kv_cache,
          .states = running_states(o),
          .host_bytes = o.host_cache_bytes,
          .directory = o.cache_dir,
          .disk_bytes = o.cache_bytes > 0 ? o.cache_bytes : size_t{4} << 30,
          .shared = o.shared_cache,
          .identity = std::move(identity),
          .observer = o.page_observer};
}

PageCache::PageCache(Orders& orders, const CacheShape& shape, const PageCacheOptions& options)
    : orders_(orders),
      shared_(orders, shape, options),
      lookup_(shared_),
      states_(orders, shared_.checkpoints(), shared_.has_states() ? options.states : 0),
      page_(static_cast<size_t>(shared_.groups())) {}

CacheNeeds PageCache::needs() const {
  CacheNeeds needs{.page_tokens = kPageTokens, .groups = shared_.groups(), .window_pages = {}};
  for (const int window : shared_.windows()) {
    if (window > 0) needs.window_pages.push_back(most_pages(std::min(window, 1 << 30)));
  }
  return needs;
}

void PageCache::begin(Sequence& s) const {
  const RequestState& r = *s.request;
  const std::string_view adapter = r.adapter_lease ? std::string_view(r.adapter_lease->by_rank[0].identity) : "";
  s.cached.root = root_key(shared_.identity(), r.tenant, r.cache_salt, r.rope_variant, adapter);
  s.cached.keys.reserve(s.tokens.capacity() / kPageTokens);
  s.pages = PageTable(shared_.groups());
  states_.prepare(s.cached.state, r.prompt_tokens);
}

// ---- prefixes ----

// Appends the pages up to `pages`, a hit, from the tree.
void PageCache::take_over(Sequence& s, int pages) {
  CachedPages& c = s.cached;
  if (pages <= c.registered) return;
  release_behind_windows(s, pages * kPageTokens);
  while (c.registered < pages) {
    const int page = c.registered;
    const auto node = shared_.find(s, page);
    for (int group = 0; group < shared_.groups(); ++group)
      page_[static_cast<size_t>(group)] =
          shared_.sees(group, page, pages * kPageTokens) ? shared_.tree().unit(node, group) : kNoUnit;
    s.pages.append_shared(shared_.pool(), page_);
    if (page >= shared_.first_windowed_page(pages * kPageTokens)) shared_.tree().touch_windows(node);
    for (int group = 0; shared_.store() && group < shared_.groups(); ++group) {  // marks it as used there too
      if (page_[static_cast<size_t>(group)] != kNoUnit) shared_.store()->find(unit_key(page_key(s, page), group));
    }
    if (shared_.has_spine()) c.last = node;
    ++c.registered;
    s.computed += kPageTokens;
  }
  if (!shared_.has_states()) return;
  const auto node = shared_.find(s, pages - 1);
  states_.set(c.state, shared_.tree().checkpoint(node));
  shared_.tree().touch_checkpoint(node);
}

void PageCache::advance(Sequence& s) {
  const CachedPages& c = s.cached;
  if (!shared_.serves(s)) return;
  const int most = (static_cast<int>(s.tokens.size()) - 1) / kPageTokens;
  if (c.registered >= most || s.computed != c.registered * kPageTokens || s.pages.tokens() != s.computed) return;
  take_over(s, lookup_.longest_hit(s, c.registered, most));
}

void PageCache::adopt(Sequence& s) {
  advance(s);
  if (s.cached.hit.tail > 0 && s.cached.registered == s.cached.hit.found)
    take_tail(s);  // else: evicted since it was found
}

void PageCache::take_tail(Sequence& s) {
  CachedPages& c = s.cached;
  const auto rest = std::span<const TokenId>(s.tokens).subspan(static_cast<size_t>(s.computed));
  const auto partial = shared_.tree().longest_partial(c.last, c.root, rest.first(rest.size() - 1));
  const int tail = std::min(partial.tokens, c.hit.tail);  // the step is planned with c.hit.tail
  if (tail < PrefixLookup::kSmallestTail) return;
  for (int group = 0; group < shared_.groups(); ++group) {
    page_[static_cast<size_t>(group)] = shared_.tree().unit(partial.node, group);
    shared_.pool().retain(page_[static_cast<size_t>(group)]);  // must not be evicted by shared_.reserve()
  }
  const bool room = shared_.available_units() >= shared_.groups();
  if (room) {
    shared_.reserve(shared_.groups());
    s.pages.grow(shared_.pool(), tail);
  }
  for (const UnitId unit : page_) shared_.pool().release(unit);
  if (!room) return;  // the prompt fills the cache; its last page is computed
  for (int group = 0; group < shared_.groups(); ++group)
    orders_.copy({page_[static_cast<size_t>(group)], s.pages.unit(group, s.pages.pages() - 1)});
  s.computed += tail;
}

// ---- steps ----

void PageCache::grow(Sequence& s, int rows, int drafts) {
  CachedPages& c = s.cached;
  const int more = s.computed + rows + drafts - s.pages.tokens();
  shared_.reserve(s.pages.units_to_grow(shared_.pool(), more));
  [[maybe_unused]] const bool grown = s.pages.grow(shared_.pool(), more);
  assert(grown);
  for (int group = 0; group < shared_.groups(); ++group) {
    if (const auto needed = s.pages.make_writable(shared_.pool(), group, s.computed)) orders_.copy(*needed);
  }
  if (!shared_.has_states()) return;
  if (c.state.slot < 0) {
    assert(s.computed == 0);
    states_.set(c.state, std::nullopt);
  }
  if (shared_.keeps_pages()) plan_checkpoints(s, rows);
  if (drafts > 0) states_.plan_return(c.state, rows - 1);
}

void PageCache::plan_checkpoints(Sequence& s, int rows) {
  states_.plan(
      s.cached.state, s.computed, s.computed + rows, s.request->prompt_tokens,
      [&](int page) {
        const auto node = shared_.find(s, page);
        return node != PrefixTree::kNone && shared_.tree().checkpoint(node);
      },
      [&] { shared_.evict_checkpoint(); });
}

int PageCache::keep_drafts(Sequence& s, int drafts, int accepted) {
  const bool goes_back = shared_.has_states() && accepted < drafts;
  if (goes_back) states_.go_back(s.cached.state);
  s.computed += accepted;
  s.pages.truncate(shared_.pool(), s.computed);
  register_finished(s);
  return goes_back ? accepted : 0;
}

// The node of a finished page; kNone if there is nothing that it could hold.
PrefixTree::Node PageCache::find_or_insert(Sequence& s, int page) {
  const auto node = shared_.find(s, page);
  if (node != PrefixTree::kNone) return node;
  bool any = false;
  for (int group = 0; group < shared_.groups(); ++group) {
    const UnitId unit = s.pages.unit(group, page);
    page_[static_cast<size_t>(group)] = unit;
    any |= unit != kNoUnit;
  }
  if (!any) return PrefixTree::kNone;
  return shared_.insert(s, shared_.has_spine() ? s.cached.last : PrefixTree::kNone, page, page_);
}

void PageCache::register_finished(Sequence& s) {
  CachedPages& c = s.cached;
  for (; shared_.keeps_pages() && (c.registered + 1) * kPageTokens <= s.computed; ++c.registered) {
    const int page = c.registered;
    const auto node = find_or_insert(s, page);
    if (node == PrefixTree::kNone) continue;
    for (int group = 0; group < shared_.groups(); ++group) {
      const UnitId mine = s.pages.unit(group, page), kept = shared_.tree().unit(node, group);
      if (mine == kNoUnit || mine == kept) continue;
      if (kept == kNoUnit) {
        shared_.tree().attach(node, group, mine);
      } else {  // another sequence computed the same page, with the same bits: keep one of the two
        s.pages.replace(shared_.pool(), group, page, kept);
      }
    }
    if (shared_.has_spine()) c.last = node;
    shared_.keep_finished(node);
  }
  states_.commit(c.state, s.request->prompt_tokens,
                 [&](PageCheckpoint planned) { return attach_checkpoint(s, planned); });
  release_behind_windows(s, s.computed);
}

// Gives the checkpoint to the tree, unless it has one already.
bool PageCache::attach_checkpoint(Sequence& s, PageCheckpoint checkpoint) {
  auto node = shared_.find(s, checkpoint.page);
  if (node == PrefixTree::kNone && !shared_.has_spine()) {
    std::fill(page_.begin(), page_.end(), kNoUnit);
    node = shared_.insert(s, PrefixTree::kNone, checkpoint.page, page_);
  }
  if (node == PrefixTree::kNone || shared_.tree().checkpoint(node)) return false;
  shared_.tree().attach_checkpoint(node, checkpoint.slot);
  shared_.keep_finished(node);
  return true;
}

void PageCache::release_behind_windows(Sequence& s, int tokens) {
  for (int group = shared_.spine_groups(); group < shared_.groups(); ++group) {
    const int first = first_visible_page(shared_.windows()[static_cast<size_t>(group)], tokens);
    s.pages.release_before(shared_.pool(), group, std::min(first, s.pages.pages()));
  }
}

void PageCache::share(const Sequence& s, Sequence& other) {
  other.pages = s.pages.fork(shared_.pool());
  other.computed = s.computed;
  other.cached.registered = s.cached.registered;
  other.cached.last = s.cached.last;
  if (shared_.has_states()) states_.set(other.cached.state, s.cached.state.slot);
}

void PageCache::release(Sequence& s) {
  CachedPages& c = s.cached;
  if (c.registered > 0 && shared_.groups() > shared_.spine_groups()) {
    for (int page = s.pages.first_held(shared_.groups() - 1); page < c.registered; ++page) {
      if (const auto node = shared_.find(s, page); node != PrefixTree::kNone) shared_.tree().touch_windows(node);
    }
  }
  if (c.last != PrefixTree::kNone) shared_.tree().touch(c.last);
  states_.release(c.state,
                  [&](PageCheckpoint latest) { return shared_.keeps_pages() && attach_checkpoint(s, latest); });
  s.pages.release(shared_.pool());
  s.computed = 0;
  s.decodes = false;
  s.drafts.clear();
  c.registered = 0;
  c.last = PrefixTree::kNone;
  c.load.active = false;
}

bool PageCache::checkpoint_for(Sequence& first, Sequence& other) {
  if (!shared_.has_states() || !shared_.serves(other) || !shared_.keeps_pages()) return false;
  const int limit = (static_cast<int>(std::min(first.tokens.size(), other.tokens.size())) - 1) / kPageTokens;
  int same = 0, end = limit;  // equal keys are keys of equal beginnings
  while (same < end) {
    const int middle = same + (end - same + 1) / 2;
    if (page_key(first, middle - 1) == page_key(other, middle - 1))
      same = middle;
    else
      end = middle - 1;
  }
  const int computed = first.pages.pages() == 0 ? first.cached.hit.found * kPageTokens : first.computed;
  if (same * kPageTokens <= computed || same < other.cached.hit.found + kWorthWaiting) return false;
  // Generated tokens of a preempted sequence get no checkpoints inside.
  return same * kPageTokens < first.request->prompt_tokens && SequenceStates::want(first.cached.state, same);
}

uint64_t PageCache::next_page(Sequence& s) const {
  if (!shared_.serves(s) || s.generated() > 0) return 0;
  const int page = (s.pages.pages() == 0 ? s.cached.hit.found * kPageTokens : s.computed) / kPageTokens;
  return (page + 1) * kPageTokens < static_cast<int>(s.tokens.size()) ? page_key(s, page).low | 1 : 0;
}

// ---- loading ----

bool PageCache::append_page(Sequence& s, int end) {
  const int page = s.pages.pages();
  s.pages.reserve(page + 1);  // may throw, so it comes first
  release_behind_windows(s, end * kPageTokens);
  // A spine is shared only where all pages before it are.
  int& shared = s.cached.load.shared;
  const auto node = !shared_.has_spine() || page == shared ? shared_.find(s, page) : PrefixTree::kNone;
  if (node != PrefixTree::kNone) ++shared;
  int empty = 0;
  for (int group = 0; group < shared_.groups(); ++group) {
    const bool seen = shared_.sees(group, page, end * kPageTokens);
    const UnitId unit = seen && node != PrefixTree::kNone ? shared_.tree().unit(node, group) : kNoUnit;
    if (unit != kNoUnit) shared_.pool().retain(unit);  // must not be evicted by shared_.reserve()
    page_[static_cast<size_t>(group)] = unit;
    empty += seen && unit == kNoUnit;
  }
  const bool room = shared_.available_units() >= empty;
  if (room) {
    shared_.reserve(empty);
    for (int group = 0; group < shared_.groups(); ++group) {
      UnitId& unit = page_[static_cast<size_t>(group)];
      if (unit == kNoUnit && shared_.sees(group, page, end * kPageTokens)) unit = *shared_.pool().allocate();
    }
    s.pages.append_shared(shared_.pool(), page_);
  }
  for (const UnitId unit : page_) {
    if (unit != kNoUnit) shared_.pool().release(unit);
  }
  return room;
}

bool PageCache::is_empty(const Sequence& s, int group, int page) const {
  const UnitId unit = s.pages.unit(group, page);
  return unit != kNoUnit && !shared_.pool().kept(unit);
}

int PageCache::begin_state(Sequence& s, int end) {
  if (!shared_.has_states() || end == s.cached.registered) return 0;
  const auto node = shared_.find(s, end - 1);
  const auto checkpoint = node != PrefixTree::kNone ? shared_.tree().checkpoint(node) : std::nullopt;
  states_.set(s.cached.state, checkpoint);
  return checkpoint ? 0 : shared_.state_parts();
}

void PageCache::keep_loaded(Sequence& s, int pages) {
  if (pages < s.cached.load.wanted && !shared_.is_plain()) return release(s);
  const bool more = pages > s.cached.registered;
  s.pages.truncate(shared_.pool(), pages * kPageTokens);
  s.computed = pages * kPageTokens;
  register_finished(s);
  if (!shared_.has_states() || !more) return;
  const auto slot = states_.copy(s.cached.state, [&] { shared_.evict_checkpoint(); });
  if (slot && !attach_checkpoint(s, {pages - 1, *slot})) shared_.checkpoints().give_back(*slot);
}

}  // namespace quire
