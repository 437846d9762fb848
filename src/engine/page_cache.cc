#include "engine/page_cache.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "engine/page_loader.h"

namespace quire {
namespace {

constexpr int kStoredChecks = 8;             // stored pages of a waiting prompt that each look-up checks again
constexpr int kSmallestTail = 4;             // tokens of a page that are worth copying
constexpr double kHostBytesPerSecond = 4e9;  // a page of host memory is copied twice

std::optional<PageStoreOptions> store_options(const PageCacheOptions& options, size_t page_bytes) {
  const bool disk = !options.directory.empty() && options.disk_bytes > 0;
  if (!options.prefixes || (options.host_bytes == 0 && !disk)) return std::nullopt;
  PageStoreOptions store;
  store.page_bytes = page_bytes;
  store.host_bytes = options.host_bytes;
  if (disk) store.directory = options.directory;
  store.disk_bytes = options.disk_bytes;
  store.identity = options.identity;
  store.warn = [](const std::string& text) { spdlog::warn("{}", text); };
  return store;
}

}  // namespace

PageCacheOptions page_cache_options(const EngineOptions& o, std::string identity) {
  return {.prefixes = o.prefix_cache && o.kv_cache,
          .host_bytes = o.host_cache_bytes,
          .directory = o.cache_dir,
          .disk_bytes = o.cache_bytes > 0 ? o.cache_bytes : size_t{4} << 30,
          .identity = std::move(identity)};
}

size_t PageCache::store_bytes(const PageCacheOptions& options, size_t page_bytes) {
  const auto store = store_options(options, page_bytes);
  if (!store) return 0;
  return PageStore::memory_bytes(*store) + PageLoader::memory_bytes(page_bytes);
}

PageCache::PageCache(CacheMemory& kv, const PageCacheOptions& options)
    : kv_(kv), options_(options), pool_(static_cast<uint32_t>(kv.units()), kPageTokens), tree_(pool_) {
  auto store = store_options(options, kv.layout().unit_bytes());
  if (!store) return;
  store_ = std::make_unique<PageStore>(std::move(*store));
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
  s.cached.root = root_key(options_.identity, s.request->tenant, s.request->cache_salt);
  s.cached.keys.reserve(s.tokens.capacity() / kPageTokens);
}

PrefixTree::Node PageCache::find(Sequence& s, int page) { return tree_.find(key(s, page), page_tokens(s, page)); }

PageStore::Tier PageCache::find_stored(Sequence& s, int page) { return store_->find(key(s, page)); }

void PageCache::look_up(Sequence& s, const StepCosts& costs, bool disk_hangs) {
  s.cached.tail = s.cached.loads = 0;
  if (!shares(s)) return;
  const auto reusable = static_cast<int>(s.tokens.size()) - 1;  // the last token is always computed, for its logits
  look_up_cached(s, reusable / kPageTokens);
  if (store_) {
    look_up_stored(s, reusable / kPageTokens);
    plan_loads(s, costs, disk_hangs);
  }
  if (s.cached.loads == 0) look_up_tail(s, reusable);
}

void PageCache::look_up_cached(Sequence& s, int limit) {
  CachedPages& c = s.cached;
  // Where the tree has a page, it has all pages before it.
  while (c.found > 0 && find(s, c.found - 1) == PrefixTree::kNone) --c.found;
  while (c.found < limit && find(s, c.found) != PrefixTree::kNone) ++c.found;
  c.idle = idle_pages(s);
}

// Loads the stored pages if that is faster than computing them.
void PageCache::plan_loads(Sequence& s, const StepCosts& costs, bool disk_hangs) const {
  CachedPages& c = s.cached;
  const int pages = c.stored_end - c.found, on_host = pages - c.stored_on_disk;
  const double host_page_seconds = static_cast<double>(kv_.layout().unit_bytes()) / kHostBytesPerSecond;
  const double seconds = c.stored_on_disk * store_->disk_read_seconds_per_page() + on_host * host_page_seconds;
  StepWork work;
  work.add(pages * kPageTokens, c.found * kPageTokens);
  c.loads_save = costs.seconds(work) - costs.fixed;
  if (seconds < c.loads_save && !(disk_hangs && c.stored_on_disk > 0)) c.loads = pages;
}

// The page after the cached ones may begin like a page in the tree.
void PageCache::look_up_tail(Sequence& s, int reusable) {
  CachedPages& c = s.cached;
  const auto begin = static_cast<size_t>(c.found * kPageTokens);
  const auto rest = std::span<const TokenId>(s.tokens).subspan(begin, static_cast<size_t>(reusable) - begin);
  const auto node = c.found > 0 ? find(s, c.found - 1) : PrefixTree::kNone;
  const auto partial = tree_.longest_partial(node, c.root, rest);
  if (partial.tokens >= kSmallestTail) c.tail = partial.tokens;
}

// A sequence that uses a page uses all pages before it, so the idle ones are the last.
int PageCache::idle_pages(Sequence& s) {
  int used = 0, end = s.cached.found;
  while (used < end) {
    const int middle = used + (end - used) / 2;
    if (pool_.idle(tree_.page(find(s, middle))))
      end = middle;
    else
      used = middle + 1;
  }
  return s.cached.found - used;
}

// Updates the run of stored pages that follows the cached ones.
void PageCache::look_up_stored(Sequence& s, int limit) {
  CachedPages& c = s.cached;
  const auto on_disk = [](PageStore::Tier tier) { return tier == PageStore::Tier::kDisk ? 1 : 0; };
  if (c.stored_end <= c.found) c.stored_begin = c.stored_end = c.found, c.stored_on_disk = 0;
  while (c.stored_begin < c.found) c.stored_on_disk -= on_disk(find_stored(s, c.stored_begin++));
  while (c.stored_begin > c.found) {
    const auto tier = find_stored(s, --c.stored_begin);
    if (tier == PageStore::Tier::kNone) c.stored_end = c.stored_begin, c.stored_on_disk = 0;
    c.stored_on_disk += on_disk(tier);
  }
  // Check a few again, round robin: this marks them as used and notices those that are gone.
  for (int left = std::min(kStoredChecks, c.stored_end - c.found); left > 0; --left, ++c.stored_asked) {
    if (c.stored_asked < c.found || c.stored_asked >= c.stored_end) c.stored_asked = c.found;
    if (find_stored(s, c.stored_asked) != PageStore::Tier::kNone) continue;
    c.stored_end = c.stored_asked;
    break;
  }
  for (; c.stored_end < limit; ++c.stored_end) {
    const auto tier = find_stored(s, c.stored_end);
    if (tier == PageStore::Tier::kNone) break;
    c.stored_on_disk += on_disk(tier);
  }
  c.stored_on_disk = std::clamp(c.stored_on_disk, 0, c.stored_end - c.found);  // pages move between the tiers
}

void PageCache::advance(Sequence& s) {
  CachedPages& c = s.cached;
  if (!shares(s)) return;
  const int most = (static_cast<int>(s.tokens.size()) - 1) / kPageTokens;
  while (c.registered < most && s.computed == c.registered * kPageTokens && s.pages.tokens() == s.computed) {
    const auto node = find(s, c.registered);
    if (node == PrefixTree::kNone) return;
    s.pages.append_shared(pool_, tree_.page(node));
    if (store_) store_->find(key(s, c.registered));  // marks it as used there too
    s.refresh_page_ids(static_cast<size_t>(c.registered));
    c.last = node;
    ++c.registered;
    s.computed += kPageTokens;
  }
}

void PageCache::adopt(Sequence& s) {
  advance(s);
  CachedPages& c = s.cached;
  if (c.tail == 0 || c.registered != c.found) return;  // evicted since it was found
  const auto rest = std::span<const TokenId>(s.tokens).subspan(static_cast<size_t>(s.computed));
  const auto partial = tree_.longest_partial(c.last, c.root, rest.first(rest.size() - 1));
  const int tail = std::min(partial.tokens, c.tail);  // the step is planned with c.tail
  if (tail < kSmallestTail) return;
  const PageId source = tree_.page(partial.node);
  pool_.retain(source);  // must not be evicted by reserve()
  const bool room = available_pages() > 0;
  if (room) {
    reserve(1);
    s.pages.grow(pool_, tail);
  }
  pool_.release(source);
  if (!room) return;  // the prompt fills the cache; its last page is computed
  copy({source, s.pages.pages().back()});
  s.refresh_page_ids(static_cast<size_t>(c.registered));
  s.computed += tail;
}

// Copies immediately, because `from` may be evicted next.
void PageCache::copy(PageCopy copy) { kv_.copy_unit(kernel_page(copy.from), kernel_page(copy.to)); }

void PageCache::reserve(int pages) {
  while (static_cast<int>(pool_.free_pages()) < pages) {
    [[maybe_unused]] const bool evicted = tree_.evict([&](PageKey key, PageId page) { keep(key, page); });
    assert(evicted && "the scheduler planned with more pages than exist");
    ++evicted_;
  }
}

void PageCache::keep(PageKey key, PageId page) {
  if (!store_ || store_->find(key) != PageStore::Tier::kNone) return;
  store_->put(key, kv_.unit(kernel_page(page)));
}

void PageCache::grow(Sequence& s, int rows) {
  const size_t held = s.pages.pages().size();
  const int more = s.computed + rows - s.pages.tokens();
  reserve(s.pages.pages_to_grow(pool_, more));
  [[maybe_unused]] const bool grown = s.pages.grow(pool_, more);
  assert(grown);
  if (const auto needed = s.pages.make_writable(pool_, s.computed)) {
    copy(*needed);
    s.refresh_page_ids(static_cast<size_t>(s.computed / kPageTokens));
  } else if (s.pages.pages().size() > held) {
    s.refresh_page_ids(held);
  }
}

void PageCache::register_finished(Sequence& s) {
  if (!options_.prefixes) return;
  CachedPages& c = s.cached;
  for (; (c.registered + 1) * kPageTokens <= s.computed; ++c.registered) {
    const auto i = static_cast<size_t>(c.registered);
    const PageKey& page_key = key(s, c.registered);
    const auto tokens = page_tokens(s, c.registered);
    const PageId page = s.pages.pages()[i];
    c.last = [&, parent = c.last] {
      const auto node = tree_.find(page_key, tokens);
      if (node == PrefixTree::kNone) return tree_.insert(parent, c.root, page_key, tokens, page);
      // Another sequence computed the same page, with the same bits: keep one of the two.
      if (tree_.page(node) != page) {
        s.pages.replace(pool_, i, tree_.page(node));
        s.page_ids[i] = kernel_page(tree_.page(node));
      }
      return node;
    }();
    if (!options_.directory.empty()) keep(page_key, tree_.page(c.last));
  }
}

void PageCache::share(const Sequence& s, Sequence& other) {
  other.page_ids = s.page_ids;  // may throw, so it comes before taking references
  other.pages = s.pages.fork(pool_);
  other.computed = s.computed;
  other.cached.registered = s.cached.registered;
  other.cached.last = s.cached.last;
}

void PageCache::release(Sequence& s) {
  CachedPages& c = s.cached;
  if (c.last != PrefixTree::kNone) tree_.touch(c.last);
  s.pages.release(pool_);
  s.page_ids.clear();
  s.computed = 0;
  c.registered = 0;
  c.last = PrefixTree::kNone;
  c.load.active = false;
}

uint64_t PageCache::next_page(Sequence& s) const {
  if (!shares(s) || s.generated() > 0) return 0;
  const int page = (s.pages.pages().empty() ? s.cached.found * kPageTokens : s.computed) / kPageTokens;
  return (page + 1) * kPageTokens < static_cast<int>(s.tokens.size()) ? key(s, page).low | 1 : 0;
}

bool PageCache::append_page(Sequence& s) {
  if (available_pages() == 0) return false;
  const size_t held = s.pages.pages().size();
  reserve(1);
  s.pages.grow(pool_, kPageTokens);
  s.refresh_page_ids(held);
  return true;
}

void PageCache::keep_loaded(Sequence& s, int pages) {
  s.pages.truncate(pool_, pages * kPageTokens);
  s.page_ids.resize(static_cast<size_t>(pages));
  s.computed = pages * kPageTokens;
  register_finished(s);
}

void PageCache::add_stats(EngineStats& stats) const {
  stats.kv_pages_used = static_cast<int>(pool_.page_count()) - available_pages();
  stats.kv_pages_idle = static_cast<int>(pool_.idle_pages());
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
