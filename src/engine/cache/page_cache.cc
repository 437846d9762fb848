#include "engine/cache/page_cache.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "engine/cache/page_loader.h"
#include "engine/drafting/drafter_kinds.h"

namespace quire {
namespace {

// The store keeps blobs of one size: units, and states cut into parts of that size.
size_t blob_bytes_of(const CacheLayout& layout) {
  return layout.unit_bytes() > 0 ? layout.unit_bytes() : layout.state_bytes();
}

std::optional<PageStoreOptions> store_options(const PageCacheOptions& options, const CacheLayout& layout) {
  const bool disk = !options.directory.empty() && options.disk_bytes > 0;
  if (!options.prefixes || (options.host_bytes == 0 && !disk)) return std::nullopt;
  PageStoreOptions store;
  store.page_bytes = blob_bytes_of(layout);
  store.host_bytes = options.host_bytes;
  if (disk) store.directory = options.directory;
  store.disk_bytes = options.disk_bytes;
  store.identity = options.identity;
  store.warn = [](const std::string& text) { spdlog::warn("{}", text); };
  return store;
}

std::vector<int> windows_of(const CacheLayout& layout) {
  std::vector<int> windows;
  for (const CacheLayout::Group& group : layout.groups()) windows.push_back(group.window);
  return windows;
}

}  // namespace

int running_states(const EngineOptions& o) { return o.max_num_seqs * (speculates(o) ? 2 : 1); }

PageCacheOptions page_cache_options(const EngineOptions& o, std::string identity) {
  return {.prefixes = o.prefix_cache && o.kv_cache,
          .states = running_states(o),
          .host_bytes = o.host_cache_bytes,
          .directory = o.cache_dir,
          .disk_bytes = o.cache_bytes > 0 ? o.cache_bytes : size_t{4} << 30,
          .identity = std::move(identity)};
}

size_t PageCache::store_bytes(const PageCacheOptions& options, const CacheLayout& layout) {
  const auto store = store_options(options, layout);
  if (!store) return 0;
  return PageStore::memory_bytes(*store) + PageLoader::memory_bytes(store->page_bytes);
}

PageCache::PageCache(Orders& orders, const CacheShape& shape, const PageCacheOptions& options)
    : orders_(orders),
      unit_bytes_(shape.layout.unit_bytes()),
      state_bytes_(shape.layout.state_bytes()),
      options_(options),
      windows_(windows_of(shape.layout)),
      spine_groups_(static_cast<int>(std::count(windows_.begin(), windows_.end(), 0))),
      pool_(static_cast<uint32_t>(shape.units), kPageTokens),
      checkpoints_(options.states, std::max(0, shape.states - options.states)),
      tree_(pool_, spine_groups_, groups() - spine_groups_, &checkpoints_),
      states_(orders, checkpoints_, shape.states > 0 ? options.states : 0),
      blob_bytes_(blob_bytes_of(shape.layout)),
      page_(windows_.size()) {
  assert(std::is_sorted(windows_.begin(), windows_.begin() + spine_groups_ + (spine_groups_ < groups())));
  auto store = store_options(options, shape.layout);
  if (!store) return;
  store_ = std::make_unique<PageStore>(std::move(*store));
  if (!states_.none()) last_part_.resize(blob_bytes_);
}

CacheNeeds PageCache::needs() const {
  CacheNeeds needs{.page_tokens = kPageTokens, .groups = groups(), .window_pages = {}};
  for (const int window : windows_) {
    if (window > 0) needs.window_pages.push_back(most_pages(std::min(window, 1 << 30)));
  }
  return needs;
}

std::span<const TokenId> PageCache::page_tokens(const Sequence& s, int page) const {
  return std::span(s.tokens).subspan(static_cast<size_t>(page) * kPageTokens, kPageTokens);
}

const PageKey& PageCache::key(Sequence& s, int page) const {
  std::vector<PageKey>& keys = s.cached.keys;
  while (std::cmp_less_equal(keys.size(), page)) {
    keys.push_back(chain(keys.empty() ? s.cached.root : keys.back(), page_tokens(s, static_cast<int>(keys.size()))));
  }
  return keys[static_cast<size_t>(page)];
}

void PageCache::begin(Sequence& s) const {
  const RequestState& r = *s.request;
  s.cached.root = root_key(options_.identity, r.tenant, r.cache_salt, r.rope_variant);
  s.cached.keys.reserve(s.tokens.capacity() / kPageTokens);
  s.pages = PageTable(groups());
  states_.prepare(s.cached, r.prompt_tokens);
}

PrefixTree::Node PageCache::find(Sequence& s, int page) { return tree_.find(key(s, page), page_tokens(s, page)); }

// ---- prefixes ----

// Appends the pages up to `pages`, a hit, from the tree.
void PageCache::take_over(Sequence& s, int pages) {
  CachedPages& c = s.cached;
  if (pages <= c.registered) return;
  release_behind_windows(s, pages * kPageTokens);
  while (c.registered < pages) {
    const int page = c.registered;
    const auto node = find(s, page);
    for (int group = 0; group < groups(); ++group)
      page_[static_cast<size_t>(group)] = sees(group, page, pages * kPageTokens) ? tree_.unit(node, group) : kNoUnit;
    s.pages.append_shared(pool_, page_);
    if (page >= first_visible_page_of_any(pages * kPageTokens)) tree_.touch_windows(node);
    for (int group = 0; store_ && group < groups(); ++group) {  // marks it as used there too
      if (page_[static_cast<size_t>(group)] != kNoUnit) store_->find(unit_key(key(s, page), group));
    }
    if (has_spine()) c.last = node;
    ++c.registered;
    s.computed += kPageTokens;
  }
  if (states_.none()) return;
  const auto node = find(s, pages - 1);
  states_.set(c, tree_.checkpoint(node));
  tree_.touch_checkpoint(node);
}

void PageCache::advance(Sequence& s) {
  const CachedPages& c = s.cached;
  if (!shares(s)) return;
  const int most = (static_cast<int>(s.tokens.size()) - 1) / kPageTokens;
  if (c.registered >= most || s.computed != c.registered * kPageTokens || s.pages.tokens() != s.computed) return;
  take_over(s, longest_hit(s, c.registered, spine_end(s, c.registered, most)));
}

void PageCache::adopt(Sequence& s) {
  advance(s);
  if (s.cached.tail > 0 && s.cached.registered == s.cached.found) take_tail(s);  // else: evicted since it was found
}

void PageCache::take_tail(Sequence& s) {
  CachedPages& c = s.cached;
  const auto rest = std::span<const TokenId>(s.tokens).subspan(static_cast<size_t>(s.computed));
  const auto partial = tree_.longest_partial(c.last, c.root, rest.first(rest.size() - 1));
  const int tail = std::min(partial.tokens, c.tail);  // the step is planned with c.tail
  if (tail < kSmallestTail) return;
  for (int group = 0; group < groups(); ++group) {
    page_[static_cast<size_t>(group)] = tree_.unit(partial.node, group);
    pool_.retain(page_[static_cast<size_t>(group)]);  // must not be evicted by reserve()
  }
  const bool room = available_units() >= groups();
  if (room) {
    reserve(groups());
    s.pages.grow(pool_, tail);
  }
  for (const UnitId unit : page_) pool_.release(unit);
  if (!room) return;  // the prompt fills the cache; its last page is computed
  for (int group = 0; group < groups(); ++group)
    orders_.copy({page_[static_cast<size_t>(group)], s.pages.unit(group, s.pages.pages() - 1)});
  s.computed += tail;
}

// ---- steps ----

void PageCache::reserve(int units) {
  while (static_cast<int>(pool_.free_units()) < units) {
    [[maybe_unused]] const bool evicted = tree_.evict(
        [&](PageKey key, int group, UnitId unit) {
          keep(key, group, unit);
          ++evicted_;
        },
        [&](PageKey key, int slot) { keep_checkpoint(key, slot); });
    assert(evicted && "the scheduler planned with more units than exist");
  }
}

void PageCache::keep(PageKey key, int group, UnitId unit) {
  if (!store_) return;
  key = unit_key(key, group);
  if (store_->find(key) != PageStore::Tier::kNone) return;
  const auto bytes = orders_.read({.index = kernel_unit(unit), .size = unit_bytes_});
  if (!bytes.empty()) store_->put(key, bytes);
}

int PageCache::state_parts() const { return static_cast<int>((state_bytes_ + blob_bytes_ - 1) / blob_bytes_); }

void PageCache::keep_checkpoint(PageKey key, int slot) {
  if (!store_) return;
  std::span<const std::byte> rest = orders_.read({.of_state = true, .index = slot, .size = state_bytes_});
  for (int part = 0; !rest.empty(); ++part) {
    const PageKey blob = checkpoint_key(key, part);
    const auto bytes = rest.first(std::min(rest.size(), blob_bytes_));
    rest = rest.subspan(bytes.size());
    if (store_->find(blob) != PageStore::Tier::kNone) continue;
    if (bytes.size() == blob_bytes_) {
      store_->put(blob, bytes);
    } else {
      std::copy(bytes.begin(), bytes.end(), last_part_.begin());
      store_->put(blob, last_part_);
    }
  }
}

void PageCache::evict_checkpoint() {
  tree_.evict_checkpoint([&](PageKey key, int slot) { keep_checkpoint(key, slot); });
}

void PageCache::grow(Sequence& s, int rows, int drafts) {
  CachedPages& c = s.cached;
  const int more = s.computed + rows + drafts - s.pages.tokens();
  reserve(s.pages.units_to_grow(pool_, more));
  [[maybe_unused]] const bool grown = s.pages.grow(pool_, more);
  assert(grown);
  for (int group = 0; group < groups(); ++group) {
    if (const auto needed = s.pages.make_writable(pool_, group, s.computed)) orders_.copy(*needed);
  }
  if (states_.none()) return;
  if (c.state < 0) {
    assert(s.computed == 0);
    states_.set(c, std::nullopt);
  }
  if (options_.prefixes) plan_checkpoints(s, rows);
  if (drafts > 0) states_.plan_return(c, rows - 1);
}

void PageCache::plan_checkpoints(Sequence& s, int rows) {
  states_.plan(
      s.cached, s.computed, s.computed + rows, s.request->prompt_tokens,
      [&](int page) {
        const auto node = find(s, page);
        return node != PrefixTree::kNone && tree_.checkpoint(node);
      },
      [&] { evict_checkpoint(); });
}

int PageCache::keep_drafts(Sequence& s, int drafts, int accepted) {
  const bool goes_back = !states_.none() && accepted < drafts;
  if (goes_back) states_.go_back(s.cached);
  s.computed += accepted;
  s.pages.truncate(pool_, s.computed);
  register_finished(s);
  return goes_back ? accepted : 0;
}

// The node of a finished page; kNone if there is nothing that it could hold.
PrefixTree::Node PageCache::find_or_insert(Sequence& s, int page) {
  const auto node = find(s, page);
  if (node != PrefixTree::kNone) return node;
  bool any = false;
  for (int group = 0; group < groups(); ++group) {
    const UnitId unit = s.pages.unit(group, page);
    page_[static_cast<size_t>(group)] = unit;
    any |= unit != kNoUnit;
  }
  if (!any) return PrefixTree::kNone;
  return tree_.insert(has_spine() ? s.cached.last : PrefixTree::kNone, s.cached.root, key(s, page),
                      page_tokens(s, page), page_);
}

void PageCache::register_finished(Sequence& s) {
  CachedPages& c = s.cached;
  for (; options_.prefixes && (c.registered + 1) * kPageTokens <= s.computed; ++c.registered) {
    const int page = c.registered;
    const auto node = find_or_insert(s, page);
    if (node == PrefixTree::kNone) continue;
    for (int group = 0; group < groups(); ++group) {
      const UnitId mine = s.pages.unit(group, page), kept = tree_.unit(node, group);
      if (mine == kNoUnit || mine == kept) continue;
      if (kept == kNoUnit) {
        tree_.attach(node, group, mine);
      } else {  // another sequence computed the same page, with the same bits: keep one of the two
        s.pages.replace(pool_, group, page, kept);
      }
    }
    if (has_spine()) c.last = node;
    if (options_.directory.empty()) continue;
    for (int group = 0; group < groups(); ++group) {
      if (const UnitId unit = tree_.unit(node, group); unit != kNoUnit) keep(key(s, page), group, unit);
    }
  }
  states_.commit(c, s.request->prompt_tokens, [&](PageCheckpoint planned) { return attach_checkpoint(s, planned); });
  release_behind_windows(s, s.computed);
}

// Gives the checkpoint to the tree, unless it has one already.
bool PageCache::attach_checkpoint(Sequence& s, PageCheckpoint checkpoint) {
  auto node = find(s, checkpoint.page);
  if (node == PrefixTree::kNone && !has_spine()) {
    std::fill(page_.begin(), page_.end(), kNoUnit);
    node =
        tree_.insert(PrefixTree::kNone, s.cached.root, key(s, checkpoint.page), page_tokens(s, checkpoint.page), page_);
  }
  if (node == PrefixTree::kNone || tree_.checkpoint(node)) return false;
  tree_.attach_checkpoint(node, checkpoint.slot);
  if (!options_.directory.empty()) keep_checkpoint(key(s, checkpoint.page), checkpoint.slot);
  return true;
}

void PageCache::release_behind_windows(Sequence& s, int tokens) {
  for (int group = spine_groups_; group < groups(); ++group) {
    const int first = first_visible_page(windows_[static_cast<size_t>(group)], tokens);
    s.pages.release_before(pool_, group, std::min(first, s.pages.pages()));
  }
}

void PageCache::share(const Sequence& s, Sequence& other) {
  other.pages = s.pages.fork(pool_);
  other.computed = s.computed;
  other.cached.registered = s.cached.registered;
  other.cached.last = s.cached.last;
  if (!states_.none()) states_.set(other.cached, s.cached.state);
}

void PageCache::release(Sequence& s) {
  CachedPages& c = s.cached;
  if (c.registered > 0 && groups() > spine_groups_) {
    for (int page = s.pages.first_held(groups() - 1); page < c.registered; ++page) {
      if (const auto node = find(s, page); node != PrefixTree::kNone) tree_.touch_windows(node);
    }
  }
  if (c.last != PrefixTree::kNone) tree_.touch(c.last);
  states_.release(c, [&](PageCheckpoint latest) { return options_.prefixes && attach_checkpoint(s, latest); });
  s.pages.release(pool_);
  s.computed = 0;
  s.decodes = false;
  s.drafts.clear();
  c.registered = 0;
  c.last = PrefixTree::kNone;
  c.load.active = false;
}

uint64_t PageCache::next_page(Sequence& s) const {
  if (!shares(s) || s.generated() > 0) return 0;
  const int page = (s.pages.pages() == 0 ? s.cached.found * kPageTokens : s.computed) / kPageTokens;
  return (page + 1) * kPageTokens < static_cast<int>(s.tokens.size()) ? key(s, page).low | 1 : 0;
}

// ---- loading ----

bool PageCache::append_page(Sequence& s, int end) {
  const int page = s.pages.pages();
  s.pages.reserve(page + 1);  // may throw, so it comes first
  release_behind_windows(s, end * kPageTokens);
  // A spine is shared only where all pages before it are.
  int& shared = s.cached.load.shared;
  const auto node = !has_spine() || page == shared ? find(s, page) : PrefixTree::kNone;
  if (node != PrefixTree::kNone) ++shared;
  int empty = 0;
  for (int group = 0; group < groups(); ++group) {
    const bool seen = sees(group, page, end * kPageTokens);
    const UnitId unit = seen && node != PrefixTree::kNone ? tree_.unit(node, group) : kNoUnit;
    if (unit != kNoUnit) pool_.retain(unit);  // must not be evicted by reserve()
    page_[static_cast<size_t>(group)] = unit;
    empty += seen && unit == kNoUnit;
  }
  const bool room = available_units() >= empty;
  if (room) {
    reserve(empty);
    for (int group = 0; group < groups(); ++group) {
      UnitId& unit = page_[static_cast<size_t>(group)];
      if (unit == kNoUnit && sees(group, page, end * kPageTokens)) unit = *pool_.allocate();
    }
    s.pages.append_shared(pool_, page_);
  }
  for (const UnitId unit : page_) {
    if (unit != kNoUnit) pool_.release(unit);
  }
  return room;
}

bool PageCache::is_empty(const Sequence& s, int group, int page) const {
  const UnitId unit = s.pages.unit(group, page);
  return unit != kNoUnit && !pool_.kept(unit);
}

int PageCache::begin_state(Sequence& s, int end) {
  if (states_.none() || end == s.cached.registered) return 0;
  const auto node = find(s, end - 1);
  const auto checkpoint = node != PrefixTree::kNone ? tree_.checkpoint(node) : std::nullopt;
  states_.set(s.cached, checkpoint);
  return checkpoint ? 0 : state_parts();
}

void PageCache::keep_loaded(Sequence& s, int pages) {
  if (pages < s.cached.load.wanted && !is_plain()) return release(s);
  const bool more = pages > s.cached.registered;
  s.pages.truncate(pool_, pages * kPageTokens);
  s.computed = pages * kPageTokens;
  register_finished(s);
  if (states_.none() || !more) return;
  const auto slot = states_.copy(s.cached, [&] { evict_checkpoint(); });
  if (slot && !attach_checkpoint(s, {pages - 1, *slot})) checkpoints_.give_back(*slot);
}

void PageCache::add_stats(EngineStats& stats) const {
  stats.kv_pages_used = static_cast<int>(pool_.unit_count()) - available_units();
  stats.kv_pages_idle = static_cast<int>(pool_.idle_units());
  stats.pages_evicted = evicted_;
  if (!store_) return;
  const PageStore::Stats store = store_->stats();
  stats.store_host_pages = store.host_pages;
  stats.store_disk_pages = store.disk_pages;
  stats.store_dropped = store.dropped;
  stats.store_write_failures = store.write_failures;
  stats.store_damaged = store.damaged;
}

}  // namespace quire
