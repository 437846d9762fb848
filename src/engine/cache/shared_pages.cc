#include "engine/cache/shared_pages.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cassert>
#include <functional>
#include <utility>

#include "engine/cache/page_loader.h"
#include "engine/cache/shared_tier.h"

namespace quire {
namespace {

// The store keeps blobs of one size: units, and states cut into parts of that size.
size_t blob_bytes_of(const CacheLayout& layout) {
  return layout.unit_bytes() > 0 ? layout.unit_bytes() : layout.state_bytes();
}

std::optional<PageStoreOptions> store_options(const PageCacheOptions& options, const CacheLayout& layout) {
  const bool disk = !options.directory.empty() && options.disk_bytes > 0, shared = !options.shared.empty();
  if (!options.prefixes || (options.host_bytes == 0 && !disk && !shared)) return std::nullopt;
  PageStoreOptions store;
  store.page_bytes = blob_bytes_of(layout);
  store.host_bytes = options.host_bytes;
  if (disk) store.directory = options.directory;
  store.disk_bytes = options.disk_bytes;
  store.identity = options.identity;
  if (shared) {
    store.open_shared = [cache = parse_shared_cache(options.shared), page_bytes = store.page_bytes,
                         limit = options.disk_bytes, identity = options.identity](Warn warn) {
      return open_shared_tier(cache, page_bytes, limit, identity, std::move(warn));
    };
  }
  store.warn = [](const std::string& text) { spdlog::warn("{}", text); };
  return store;
}

std::vector<int> windows_of(const CacheLayout& layout) {
  std::vector<int> windows;
  for (const CacheLayout::Group& group : layout.groups()) windows.push_back(group.window);
  return windows;
}

}  // namespace

size_t SharedPages::store_bytes(const PageCacheOptions& options, const CacheLayout& layout) {
  const auto store = store_options(options, layout);
  if (!store) return 0;
  return PageStore::memory_bytes(*store) + PageLoader::memory_bytes(store->page_bytes);
}

SharedPages::SharedPages(Orders& orders, const CacheShape& shape, const PageCacheOptions& options)
    : orders_(orders),
      options_(options),
      unit_bytes_(shape.layout.unit_bytes()),
      state_bytes_(shape.layout.state_bytes()),
      blob_bytes_(blob_bytes_of(shape.layout)),
      windows_(windows_of(shape.layout)),
      spine_groups_(static_cast<int>(std::count(windows_.begin(), windows_.end(), 0))),
      has_states_(shape.states > 0 && options.states > 0),
      pool_(static_cast<uint32_t>(shape.units), kPageTokens),
      checkpoints_(options.states, std::max(0, shape.states - options.states)),
      tree_(pool_, spine_groups_, groups() - spine_groups_, &checkpoints_) {
  assert(std::is_sorted(windows_.begin(), windows_.begin() + spine_groups_ + (spine_groups_ < groups())));
  if (options_.observer) tree_.on_remove([this](PageKey key) { options_.observer->removed(key.low); });
  auto store = store_options(options, shape.layout);
  if (!store) return;
  store_ = std::make_unique<PageStore>(std::move(*store));
}

PrefixTree::Node SharedPages::insert(Sequence& s, PrefixTree::Node parent, int page, std::span<const UnitId> units) {
  const PageKey key = page_key(s, page);
  const auto node = tree_.insert(parent, s.cached.root, key, page_tokens(s, page), units);
  if (options_.observer) {
    options_.observer->stored({.hash = key.low,
                               .parent = page > 0 ? std::optional(page_key(s, page - 1).low) : std::nullopt,
                               .tokens = page_tokens(s, page),
                               .adapter = s.request->adapter});
  }
  return node;
}

int SharedPages::first_windowed_page(int tokens) const {
  if (groups() == spine_groups_) return tokens / kPageTokens;
  return first_visible_page(windows_.back(), tokens);  // the largest window
}

void SharedPages::reserve(int units) {
  while (static_cast<int>(pool_.free_units()) < units) {
    [[maybe_unused]] const bool evicted = tree_.evict(
        [&](PageKey key, int group, UnitId unit) {
          store_unit(key, group, unit);
          ++evicted_;
        },
        [&](PageKey key, int slot) { store_checkpoint(key, slot); });
    assert(evicted && "the scheduler planned with more units than exist");
  }
}

void SharedPages::keep_finished(PrefixTree::Node node) {
  if (options_.directory.empty() && options_.shared.empty()) return;
  if (orders_.copies_meanwhile()) {
    try {
      return finished_.push_back(tree_.key(node));
    } catch (const std::bad_alloc&) {  // now, then
    }
  }
  store_node(node);
}

// A node that has been evicted meanwhile was stored then.
void SharedPages::store_finished() {
  for (const PageKey key : finished_)
    if (const auto node = tree_.find(key); node != PrefixTree::kNone) store_node(node);
  finished_.clear();
}

void SharedPages::store_ahead(int units, Clock::time_point until) {
  if (!store_) return;
  units = std::min(units, available_units());
  int ready = static_cast<int>(pool_.free_units());
  if (ready >= units) return;
  tree_.for_each_next([&](PrefixTree::Node node, bool whole) {
    for (int group = whole ? 0 : spine_groups_; group < groups(); ++group) {
      const UnitId unit = tree_.unit(node, group);
      if (unit == kNoUnit || !pool_.idle(unit)) continue;
      if (!is_stored(unit_key(tree_.key(node), group))) {
        if (Clock::now() >= until) return false;
        store_unit(tree_.key(node), group, unit);
        ++stored_ahead_;
      }
      ++ready;
    }
    if (const auto slot = tree_.checkpoint(node); slot && whole && pool_.idle(tree_.unit(node, 0)))
      store_checkpoint(tree_.key(node), *slot);
    return ready < units;
  });
}

void SharedPages::store_node(PrefixTree::Node node) {
  for (int group = 0; group < groups(); ++group)
    if (const UnitId unit = tree_.unit(node, group); unit != kNoUnit) store_unit(tree_.key(node), group, unit);
  if (const auto slot = tree_.checkpoint(node)) store_checkpoint(tree_.key(node), *slot);
}

void SharedPages::store_unit(PageKey key, int group, UnitId unit) {
  if (!store_) return;
  key = unit_key(key, group);
  if (is_stored(key)) return;
  const auto read = [&](std::span<std::byte> page) {
    return orders_.read({.group = group, .index = kernel_unit(unit), .size = unit_bytes_}, page);
  };
  store_->put(key, std::ref(read));
}

int SharedPages::state_parts() const { return static_cast<int>((state_bytes_ + blob_bytes_ - 1) / blob_bytes_); }

void SharedPages::store_checkpoint(PageKey key, int slot) {
  if (!store_) return;
  for (int part = 0; part < state_parts(); ++part) {
    const PageKey blob = checkpoint_key(key, part);
    if (is_stored(blob)) continue;
    const size_t begin = static_cast<size_t>(part) * blob_bytes_, size = std::min(blob_bytes_, state_bytes_ - begin);
    const auto read = [&](std::span<std::byte> page) {
      std::ranges::fill(page.subspan(size), std::byte{0});
      return orders_.read({.of_state = true, .index = slot, .offset = begin, .size = size}, page.first(size));
    };
    store_->put(blob, std::ref(read));
  }
}

void SharedPages::evict_checkpoint() {
  tree_.evict_checkpoint([&](PageKey key, int slot) { store_checkpoint(key, slot); });
}

void SharedPages::add_stats(EngineStats& stats) const {
  stats.kv_pages_used = static_cast<int>(pool_.unit_count()) - available_units();
  stats.kv_pages_idle = static_cast<int>(pool_.idle_units());
  stats.pages_evicted = evicted_;
  stats.pages_stored_ahead = stored_ahead_;
}

void SharedPages::add_store_stats(EngineStats& stats) const {
  if (!store_) return;
  const PageStore::Stats store = store_->stats();
  stats.store_host_pages = store.host_pages;
  stats.store_disk_pages = store.disk_pages;
  stats.store_dropped = store.dropped;
  stats.store_write_failures = store.write_failures;
  stats.store_damaged = store.damaged;
  stats.shared_hits = store.shared.hits;
  stats.shared_misses = store.shared.misses;
  stats.shared_read_bytes = store.shared.read_bytes;
  stats.shared_written_bytes = store.shared.written_bytes;
  stats.shared_errors = store.shared.errors;
}

}  // namespace quire
