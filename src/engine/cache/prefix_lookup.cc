// What the prefix tree and the page store have of a waiting prompt.

#include <algorithm>
#include <cassert>
#include <optional>

#include "engine/cache/page_cache.h"

namespace quire {
namespace {

constexpr int kStoredChecks = 8;             // stored pages of a waiting prompt that each look-up checks again
constexpr int kAttachmentChecks = 256;       // pages whose windows and checkpoints each look-up looks for in the store
constexpr int kWorthWaiting = 4;             // common pages that a prompt waits for another to compute
constexpr double kHostBytesPerSecond = 4e9;  // a unit of host memory is copied twice

int on_disk(PageStore::Tier tier) { return tier == PageStore::Tier::kDisk ? 1 : 0; }

}  // namespace

// ---- the tree ----

// Without a spine every prefix of the prompt may be a hit.
int PageCache::spine_end(Sequence& s, int from, int limit) {
  if (!has_spine()) return limit;
  while (from < limit && find(s, from) != PrefixTree::kNone) ++from;
  return from;
}

int PageCache::first_visible_page_of_any(int tokens) const {
  if (groups() == spine_groups_) return tokens / kPageTokens;
  return first_visible_page(windows_.back(), tokens);  // the largest window
}

// The tree has the page's units that a prefix of `end` pages needs, in the groups with a window.
bool PageCache::has_window_units(Sequence& s, int page, int end) {
  const auto node = find(s, page);
  for (int group = spine_groups_; group < groups(); ++group) {
    if (!sees(group, page, end * kPageTokens)) continue;
    if (node == PrefixTree::kNone || tree_.unit(node, group) == kNoUnit) return false;
  }
  return true;
}

// The longest hit in [from, limit]. The sequence has the first `from` pages, and the tree the spine of all.
int PageCache::longest_hit(Sequence& s, int from, int limit) {
  if (is_plain()) return limit;
  const auto lacking = [&](int end) {  // the last page that a hit of `end` pages needs but does not have, or -1
    if (!states_.none()) {
      const auto node = find(s, end - 1);
      if (node == PrefixTree::kNone || !tree_.checkpoint(node)) return end - 1;
    }
    for (int page = end; page-- > std::max(from, first_visible_page_of_any(end * kPageTokens));) {
      if (!has_window_units(s, page, end)) return page;
    }
    return -1;
  };
  int end = limit;
  while (end > from) {
    const int page = lacking(end);
    if (page < 0) break;
    end = page;  // every prefix that ends later needs this page, too, up to `end`
  }
  return std::max(end, from);
}

void PageCache::look_up(Sequence& s, const StepCosts& costs, bool disk_hangs) {
  s.cached.tail = s.cached.loads = s.cached.load_units = 0;
  if (!shares(s)) return;
  const auto reusable = static_cast<int>(s.tokens.size()) - 1;  // the last token is always computed, for its logits
  const int limit = reusable / kPageTokens;
  look_up_cached(s, limit);
  if (store_) {
    look_up_stored(s, limit);
    plan_loads(s, costs, limit, disk_hangs);
  }
  if (s.cached.loads == 0 && is_plain()) look_up_tail(s, reusable);
}

void PageCache::look_up_cached(Sequence& s, int limit) {
  CachedPages& c = s.cached;
  // Where the tree has a spine, it has those of all pages before it.
  while (has_spine() && c.spine > 0 && find(s, c.spine - 1) == PrefixTree::kNone) --c.spine;
  c.spine = spine_end(s, c.spine, limit);
  c.found = longest_hit(s, 0, c.spine);
  c.units = units_of(c.found);
  c.idle = idle_units(s);
}

// Units that a sequence of so many pages holds.
int PageCache::units_of(int pages) const {
  int units = 0;
  for (const int window : windows_) units += pages - std::min(pages, first_visible_page(window, pages * kPageTokens));
  return units;
}

// Of the pages found, the units that no sequence uses.
int PageCache::idle_units(Sequence& s) {
  const int found = s.cached.found;
  int idle = 0;
  if (has_spine()) {  // a sequence that uses a spine uses all before it, so the idle ones are the last
    int used = 0, end = found;
    while (used < end) {
      const int middle = used + (end - used) / 2;
      if (pool_.idle(tree_.unit(find(s, middle), 0)))
        end = middle;
      else
        used = middle + 1;
    }
    idle = (found - used) * spine_groups_;
  }
  for (int page = first_visible_page_of_any(found * kPageTokens); page < found; ++page) {
    const auto node = find(s, page);
    for (int group = spine_groups_; group < groups(); ++group)
      idle += sees(group, page, found * kPageTokens) && pool_.idle(tree_.unit(node, group));
  }
  return idle;
}

bool PageCache::checkpoint_for(Sequence& first, Sequence& other) {
  if (states_.none() || !shares(other) || !options_.prefixes) return false;
  const int limit = (static_cast<int>(std::min(first.tokens.size(), other.tokens.size())) - 1) / kPageTokens;
  int same = 0, end = limit;  // equal keys are keys of equal beginnings
  while (same < end) {
    const int middle = same + (end - same + 1) / 2;
    if (key(first, middle - 1) == key(other, middle - 1))
      same = middle;
    else
      end = middle - 1;
  }
  const int computed = first.pages.pages() == 0 ? first.cached.found * kPageTokens : first.computed;
  if (same * kPageTokens <= computed || same < other.cached.found + kWorthWaiting) return false;
  // Generated tokens of a preempted sequence get no checkpoints inside.
  return same * kPageTokens < first.request->prompt_tokens && SequenceStates::want(first.cached, same);
}

// ---- the store ----

// The slowest tier that holds a part of the page's spine; kNone: the store lacks a part.
PageStore::Tier PageCache::find_stored(Sequence& s, int page) {
  auto worst = PageStore::Tier::kHost;
  for (int group = 0; group < spine_groups_; ++group) {
    const auto tier = store_->find(unit_key(key(s, page), group));
    if (tier == PageStore::Tier::kNone) return tier;
    if (tier == PageStore::Tier::kDisk) worst = tier;
  }
  return worst;
}

// Updates the run of stored spines that follows those of the tree.
void PageCache::look_up_stored(Sequence& s, int limit) {
  CachedPages& c = s.cached;
  if (c.stored_end <= c.spine) c.stored_begin = c.stored_end = c.spine, c.stored_on_disk = 0;
  while (c.stored_begin < c.spine) c.stored_on_disk -= on_disk(find_stored(s, c.stored_begin++));
  while (c.stored_begin > c.spine) {
    const auto tier = find_stored(s, --c.stored_begin);
    if (tier == PageStore::Tier::kNone) c.stored_end = c.stored_begin, c.stored_on_disk = 0;
    c.stored_on_disk += on_disk(tier);
  }
  // Check a few again, round robin: this marks them as used and notices those that are gone.
  for (int left = std::min(kStoredChecks, c.stored_end - c.spine); left > 0; --left, ++c.stored_asked) {
    if (c.stored_asked < c.spine || c.stored_asked >= c.stored_end) c.stored_asked = c.spine;
    if (find_stored(s, c.stored_asked) != PageStore::Tier::kNone) continue;
    c.stored_end = c.stored_asked;
    break;
  }
  for (; c.stored_end < limit; ++c.stored_end) {
    const auto tier = find_stored(s, c.stored_end);
    if (tier == PageStore::Tier::kNone) break;
    c.stored_on_disk += on_disk(tier);
  }
  c.stored_on_disk = std::clamp(c.stored_on_disk, 0, c.stored_end - c.spine);  // pages move between the tiers
}

bool PageCache::is_stored(PageKey blob, int& read, int& disk) {
  const auto tier = store_->find(blob);
  ++read;
  disk += on_disk(tier);
  return tier != PageStore::Tier::kNone;
}

bool PageCache::has_stored_windows(Sequence& s, int page, int end, int& read, int& disk) {
  const auto node = find(s, page);
  for (int group = spine_groups_; group < groups(); ++group) {
    if (!sees(group, page, end * kPageTokens)) continue;
    if (node != PrefixTree::kNone && tree_.unit(node, group) != kNoUnit) continue;
    if (!is_stored(unit_key(key(s, page), group), read, disk)) return false;
  }
  return true;
}

// Looks for the first and the last part only. If another is missing, loading fails.
bool PageCache::has_stored_checkpoint(Sequence& s, int page, int& read, int& disk) {
  const auto node = find(s, page);
  if (node != PrefixTree::kNone && tree_.checkpoint(node)) return true;
  const int last = state_parts() - 1;
  int on_disk = 0;
  if (!is_stored(checkpoint_key(key(s, page), 0), read, on_disk)) return false;
  if (last > 0 && !is_stored(checkpoint_key(key(s, page), last), read, on_disk)) return false;
  read += std::max(0, last - 1);
  if (on_disk > 0) disk += last + 1;
  return true;
}

// The longest prefix, up to `limit` pages, whose windows and checkpoint are in the tree or the store. Sets
// `read` to what has to be read from the store, and `disk` to how much of that is on disk.
int PageCache::stored_hit(Sequence& s, int limit, int& read, int& disk) {
  const int found = s.cached.found;
  int checks = kAttachmentChecks;
  for (int end = limit; end > found && checks > 0;) {
    read = disk = 0;
    if (!states_.none() && (--checks, !has_stored_checkpoint(s, end - 1, read, disk))) {
      --end;
      continue;
    }
    int page = end;
    const int first = std::max(found, first_visible_page_of_any(end * kPageTokens));
    while (page > first && --checks > 0 && has_stored_windows(s, page - 1, end, read, disk)) --page;
    if (page == first) return end;
    end = page - 1;
  }
  read = disk = 0;
  return found;
}

// Loads the stored pages if that is faster than computing them.
void PageCache::plan_loads(Sequence& s, const StepCosts& costs, int limit, bool disk_hangs) {
  CachedPages& c = s.cached;
  int attached = 0, attached_on_disk = 0;
  const int end = stored_hit(s, has_spine() ? c.stored_end : limit, attached, attached_on_disk);
  if (end == c.found) return;
  const int spines = has_spine() ? std::max(0, end - c.spine) : 0;
  const int from_disk = std::min(c.stored_on_disk, spines) * spine_groups_ + attached_on_disk;
  const int from_host = spines * spine_groups_ + attached - from_disk;
  const double host_seconds = static_cast<double>(blob_bytes_) / kHostBytesPerSecond;
  const double seconds = from_disk * store_->disk_read_seconds_per_page() + from_host * host_seconds;
  StepWork work;
  work.add((end - c.found) * kPageTokens, c.found * kPageTokens);
  c.loads_save = costs.seconds(work) - costs.seconds_at(0);
  if (seconds >= c.loads_save || (disk_hangs && from_disk > 0)) return;
  c.loads = end - c.found;
  for (const int window : windows_)
    c.load_units += end - std::max(c.found, first_visible_page(window, end * kPageTokens));
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

}  // namespace quire
