#include "engine/cache/prefix_lookup.h"

#include <algorithm>

namespace quire {
namespace {

constexpr int kStoredChecks = 8;             // stored pages of a waiting prompt that each look-up checks again
constexpr int kAttachmentChecks = 256;       // pages whose windows and checkpoints each look-up looks for in the store
constexpr double kLongestQuestion = 0.1;     // seconds that a prompt waits for what a shared tier has
constexpr double kHostBytesPerSecond = 4e9;  // a unit of host memory is copied twice

int on_disk(PageStore::Tier tier) { return tier == PageStore::Tier::kDisk ? 1 : 0; }

}  // namespace

PrefixLookup::PrefixLookup(const SharedPages& shared) : shared_(shared) {
  if (shared.store() && shared.store()->is_shared()) asked_.reserve(PageStore::kMostAsked);
}

// ---- the tree ----

// Without a spine every prefix of the prompt may be a hit.
int PrefixLookup::spine_end(Sequence& s, int from, int limit) const {
  if (!shared_.has_spine()) return limit;
  while (from < limit && shared_.find(s, from) != PrefixTree::kNone) ++from;
  return from;
}

// The tree has the page's units that a prefix of `end` pages needs, in the groups with a window.
bool PrefixLookup::has_window_units(Sequence& s, int page, int end) const {
  const auto node = shared_.find(s, page);
  for (int group = shared_.spine_groups(); group < shared_.groups(); ++group) {
    if (!shared_.sees(group, page, end * kPageTokens)) continue;
    if (node == PrefixTree::kNone || shared_.tree().unit(node, group) == kNoUnit) return false;
  }
  return true;
}

int PrefixLookup::longest_hit(Sequence& s, int from, int limit) const {
  return longest_hit_of_spine(s, from, spine_end(s, from, limit));
}

// The longest hit in [from, limit]. The sequence has the first `from` pages, and the tree the spine of all.
int PrefixLookup::longest_hit_of_spine(Sequence& s, int from, int limit) const {
  if (shared_.is_plain()) return limit;
  const auto lacking = [&](int end) {  // the last page that a hit of `end` pages needs but does not have, or -1
    if (shared_.has_states()) {
      const auto node = shared_.find(s, end - 1);
      if (node == PrefixTree::kNone || !shared_.tree().checkpoint(node)) return end - 1;
    }
    for (int page = end; page-- > std::max(from, shared_.first_windowed_page(end * kPageTokens));) {
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

void PrefixLookup::look_up(Sequence& s, const StepCosts& costs, bool disk_hangs) const {
  s.cached.hit.tail = s.cached.hit.loads = s.cached.hit.load_units = 0;
  if (!shared_.serves(s)) return;
  const auto reusable = static_cast<int>(s.tokens.size()) - 1;  // the last token is always computed, for its logits
  const int limit = reusable / kPageTokens;
  look_up_cached(s, limit);
  if (shared_.store()) {
    ask(s, costs, limit);
    if (s.cached.hit.awaits) return;
    look_up_stored(s, limit);
    plan_loads(s, costs, limit, disk_hangs);
  }
  if (s.cached.hit.loads == 0 && shared_.is_plain()) look_up_tail(s, reusable);
}

void PrefixLookup::look_up_cached(Sequence& s, int limit) const {
  PrefixHit& hit = s.cached.hit;
  // Where the tree has a spine, it has those of all pages before it.
  while (shared_.has_spine() && hit.spine > 0 && shared_.find(s, hit.spine - 1) == PrefixTree::kNone) --hit.spine;
  hit.spine = spine_end(s, hit.spine, limit);
  hit.found = longest_hit_of_spine(s, 0, hit.spine);
  hit.units = units_of(hit.found);
  hit.idle = idle_units(s);
}

// Units that a sequence of so many pages holds.
int PrefixLookup::units_of(int pages) const {
  int units = 0;
  for (const int window : shared_.windows())
    units += pages - std::min(pages, first_visible_page(window, pages * kPageTokens));
  return units;
}

// Of the pages found, the units that no sequence uses.
int PrefixLookup::idle_units(Sequence& s) const {
  const int found = s.cached.hit.found;
  int idle = 0;
  if (shared_.has_spine()) {  // a sequence that uses a spine uses all before it, so the idle ones are the last
    int used = 0, end = found;
    while (used < end) {
      const int middle = used + (end - used) / 2;
      if (shared_.pool().idle(shared_.tree().unit(shared_.find(s, middle), 0)))
        end = middle;
      else
        used = middle + 1;
    }
    idle = (found - used) * shared_.spine_groups();
  }
  for (int page = shared_.first_windowed_page(found * kPageTokens); page < found; ++page) {
    const auto node = shared_.find(s, page);
    for (int group = shared_.spine_groups(); group < shared_.groups(); ++group)
      idle += shared_.sees(group, page, found * kPageTokens) && shared_.pool().idle(shared_.tree().unit(node, group));
  }
  return idle;
}

// ---- the store ----

// The keys of all pages, because for a shared tier a question is also a use; of checkpoints the first and the last part, as in
// has_stored_checkpoint().
void PrefixLookup::collect_keys(Sequence& s, int pages) const {
  const size_t each = static_cast<size_t>(shared_.groups()) + (shared_.has_states() ? 2 : 0);
  asked_.clear();
  for (int page = 0; page < pages && asked_.size() + each <= asked_.capacity(); ++page) {
    const PageKey& key = page_key(s, page);
    for (int group = 0; group < shared_.groups(); ++group) asked_.push_back(unit_key(key, group));
    if (!shared_.has_states()) continue;
    for (const int part : {0, shared_.state_parts() - 1}) asked_.push_back(checkpoint_key(key, part));
  }
}

// Once for each prompt. It waits for the answer no longer than kLongestQuestion, nor longer than computing it would take.
void PrefixLookup::ask(Sequence& s, const StepCosts& costs, int limit) const {
  PrefixHit& hit = s.cached.hit;
  const auto now = Clock::now();
  if (!hit.asked && hit.found < limit && shared_.store()->is_shared()) {
    collect_keys(s, limit);
    hit.question = shared_.store()->ask(asked_);
    StepWork work;
    work.add((limit - hit.found) * kPageTokens, hit.found * kPageTokens);
    const std::chrono::duration<double> patience(std::min(kLongestQuestion, costs.seconds(work)));
    hit.answer_by = now + std::chrono::duration_cast<Clock::duration>(patience);
  }
  hit.asked = true;
  hit.awaits = hit.question > 0 && now < hit.answer_by && !shared_.store()->answered(hit.question);
}

// The slowest tier that holds a part of the page's spine; kNone: the store lacks a part.
PageStore::Tier PrefixLookup::find_stored(Sequence& s, int page) const {
  auto worst = PageStore::Tier::kHost;
  for (int group = 0; group < shared_.spine_groups(); ++group) {
    const auto tier = shared_.store()->find(unit_key(page_key(s, page), group));
    if (tier == PageStore::Tier::kNone) return tier;
    if (tier == PageStore::Tier::kDisk) worst = tier;
  }
  return worst;
}

// Updates the run of stored spines that follows those of the tree.
void PrefixLookup::look_up_stored(Sequence& s, int limit) const {
  PrefixHit& hit = s.cached.hit;
  if (hit.stored_end <= hit.spine) hit.stored_begin = hit.stored_end = hit.spine, hit.stored_on_disk = 0;
  while (hit.stored_begin < hit.spine) hit.stored_on_disk -= on_disk(find_stored(s, hit.stored_begin++));
  while (hit.stored_begin > hit.spine) {
    const auto tier = find_stored(s, --hit.stored_begin);
    if (tier == PageStore::Tier::kNone) hit.stored_end = hit.stored_begin, hit.stored_on_disk = 0;
    hit.stored_on_disk += on_disk(tier);
  }
  // Check a few again, round robin: this marks them as used and notices those that are gone.
  for (int left = std::min(kStoredChecks, hit.stored_end - hit.spine); left > 0; --left, ++hit.stored_asked) {
    if (hit.stored_asked < hit.spine || hit.stored_asked >= hit.stored_end) hit.stored_asked = hit.spine;
    if (find_stored(s, hit.stored_asked) != PageStore::Tier::kNone) continue;
    hit.stored_end = hit.stored_asked;
    break;
  }
  for (; hit.stored_end < limit; ++hit.stored_end) {
    const auto tier = find_stored(s, hit.stored_end);
    if (tier == PageStore::Tier::kNone) break;
    hit.stored_on_disk += on_disk(tier);
  }
  hit.stored_on_disk = std::clamp(hit.stored_on_disk, 0, hit.stored_end - hit.spine);  // pages move between the tiers
}

bool PrefixLookup::is_stored(PageKey blob, Reads& reads) const {
  const auto tier = shared_.store()->find(blob);
  ++reads.all;
  reads.on_disk += on_disk(tier);
  return tier != PageStore::Tier::kNone;
}

bool PrefixLookup::has_stored_windows(Sequence& s, int page, int end, Reads& reads) const {
  const auto node = shared_.find(s, page);
  for (int group = shared_.spine_groups(); group < shared_.groups(); ++group) {
    if (!shared_.sees(group, page, end * kPageTokens)) continue;
    if (node != PrefixTree::kNone && shared_.tree().unit(node, group) != kNoUnit) continue;
    if (!is_stored(unit_key(page_key(s, page), group), reads)) return false;
  }
  return true;
}

// Looks for the first and the last part only. If another is missing, loading fails.
bool PrefixLookup::has_stored_checkpoint(Sequence& s, int page, Reads& reads) const {
  const auto node = shared_.find(s, page);
  if (node != PrefixTree::kNone && shared_.tree().checkpoint(node)) return true;
  const int last = shared_.state_parts() - 1;
  Reads ends;
  if (!is_stored(checkpoint_key(page_key(s, page), 0), ends)) return false;
  if (last > 0 && !is_stored(checkpoint_key(page_key(s, page), last), ends)) return false;
  reads.all += last + 1;
  if (ends.on_disk > 0) reads.on_disk += last + 1;
  return true;
}

// The longest prefix, up to `limit` pages, whose windows and checkpoint are in the tree or the store. Sets
// `reads` to what has to be read from the store.
int PrefixLookup::stored_hit(Sequence& s, int limit, Reads& reads) const {
  const int found = s.cached.hit.found;
  int checks = kAttachmentChecks;
  for (int end = limit; end > found && checks > 0;) {
    reads = {};
    if (shared_.has_states() && (--checks, !has_stored_checkpoint(s, end - 1, reads))) {
      --end;
      continue;
    }
    int page = end;
    const int first = std::max(found, shared_.first_windowed_page(end * kPageTokens));
    while (page > first && --checks > 0 && has_stored_windows(s, page - 1, end, reads)) --page;
    if (page == first) return end;
    end = page - 1;
  }
  reads = {};
  return found;
}

// Loads the stored pages if that is faster than computing them.
void PrefixLookup::plan_loads(Sequence& s, const StepCosts& costs, int limit, bool disk_hangs) const {
  PrefixHit& hit = s.cached.hit;
  Reads attached;  // windows and the checkpoint
  const int end = stored_hit(s, shared_.has_spine() ? hit.stored_end : limit, attached);
  if (end == hit.found) return;
  const int spines = shared_.has_spine() ? std::max(0, end - hit.spine) : 0;
  const int from_disk = std::min(hit.stored_on_disk, spines) * shared_.spine_groups() + attached.on_disk;
  const int from_host = spines * shared_.spine_groups() + attached.all - from_disk;
  const double host_seconds = static_cast<double>(shared_.blob_bytes()) / kHostBytesPerSecond;
  const double seconds = from_disk * shared_.store()->disk_read_seconds_per_page() + from_host * host_seconds;
  StepWork work;
  work.add((end - hit.found) * kPageTokens, hit.found * kPageTokens);
  hit.loads_save = costs.seconds(work) - costs.seconds_at(0);
  if (seconds >= hit.loads_save || (disk_hangs && from_disk > 0)) return;
  hit.loads = end - hit.found;
  for (const int window : shared_.windows())
    hit.load_units += end - std::max(hit.found, first_visible_page(window, end * kPageTokens));
}

// The page after the cached ones may begin like a page in the tree.
void PrefixLookup::look_up_tail(Sequence& s, int reusable) const {
  PrefixHit& hit = s.cached.hit;
  const auto begin = static_cast<size_t>(hit.found * kPageTokens);
  const auto rest = std::span<const TokenId>(s.tokens).subspan(begin, static_cast<size_t>(reusable) - begin);
  const auto node = hit.found > 0 ? shared_.find(s, hit.found - 1) : PrefixTree::kNone;
  const auto partial = shared_.tree().longest_partial(node, s.cached.root, rest);
  if (partial.tokens >= kSmallestTail) hit.tail = partial.tokens;
}

}  // namespace quire
