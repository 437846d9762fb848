#include "kv/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace quire {
namespace {

// Children that longest_partial compares, the newest first. A match saves less than a page of tokens, so the search
// must be cheap.
constexpr int kMostChildren = 64;

// Every node holds something: its spine, or in a model without one at least one unit or checkpoint.
size_t most_nodes(const UnitPool& pool, int spine_groups, const SlotPool* checkpoints) {
  const size_t units = pool.unit_count();
  if (spine_groups > 0) return units / static_cast<size_t>(spine_groups);
  return units + (checkpoints ? static_cast<size_t>(checkpoints->count()) : 0);
}

}  // namespace

PrefixTree::PrefixTree(UnitPool& pool, int spine_groups, int window_groups, SlotPool* checkpoints)
    : pool_(pool),
      checkpoints_(checkpoints),
      spine_groups_(static_cast<size_t>(spine_groups)),
      groups_(static_cast<size_t>(spine_groups + window_groups)),
      nodes_(most_nodes(pool, spine_groups, checkpoints)),
      units_(nodes_.size() * groups_, kNoUnit),
      tokens_(nodes_.size() * static_cast<size_t>(pool.page_tokens())),
      buckets_(std::bit_ceil(nodes_.size() + 1), kNone),
      spines_(nodes_.size()),
      windows_(nodes_.size()),
      held_checkpoints_(nodes_.size()) {
  for (auto node = static_cast<Node>(nodes_.size()); node-- > 0;) {
    nodes_[node].next_in_bucket = free_;
    free_ = node;
  }
}

PrefixTree::Node PrefixTree::find(PageKey key) const {
  Node node = buckets_[key.low & (buckets_.size() - 1)];
  while (node != kNone && nodes_[node].key != key) node = nodes_[node].next_in_bucket;
  return node;
}

PrefixTree::Node PrefixTree::find(PageKey key, std::span<const TokenId> tokens) const {
  assert(std::cmp_equal(tokens.size(), pool_.page_tokens()));
  const Node node = find(key);
  if (node == kNone) return kNone;
  return std::equal(tokens.begin(), tokens.end(), tokens_.begin() + static_cast<ptrdiff_t>(node * tokens.size()))
             ? node
             : kNone;
}

std::optional<int> PrefixTree::checkpoint(Node node) const {
  return nodes_[node].checkpoint >= 0 ? std::optional(nodes_[node].checkpoint) : std::nullopt;
}

PrefixTree::Partial PrefixTree::longest_partial(Node parent, PageKey root, std::span<const TokenId> tokens) const {
  Partial best;
  const auto page_tokens = static_cast<size_t>(pool_.page_tokens());
  tokens = tokens.first(std::min(tokens.size(), page_tokens));
  Node node = parent == kNone ? first_of_roots_ : nodes_[parent].first_child;
  for (int seen = 0; node != kNone && seen < kMostChildren; ++seen, node = nodes_[node].next_sibling) {
    if (nodes_[node].root != root) continue;
    const auto begin = tokens_.begin() + static_cast<ptrdiff_t>(node * page_tokens);
    const auto same = static_cast<int>(std::mismatch(tokens.begin(), tokens.end(), begin).first - tokens.begin());
    if (same > best.tokens) best = {node, same};
  }
  return best;
}

PrefixTree::Node PrefixTree::insert(Node parent, PageKey root, PageKey key, std::span<const TokenId> tokens,
                                    std::span<const UnitId> units) {
  assert(free_ != kNone && "more nodes than can hold something");
  assert(find(key, tokens) == kNone);
  assert(units.size() == groups_);
  assert((spine_groups_ > 0 || parent == kNone) && "parents need a spine");
  const Node node = free_;
  free_ = nodes_[node].next_in_bucket;
  Node& first = first_child_of(parent);
  nodes_[node] = {.key = key,
                  .root = root,
                  .parent = parent,
                  .first_child = kNone,
                  .next_sibling = first,
                  .previous_sibling = kNone,
                  .next_in_bucket = bucket(key),
                  .checkpoint = -1};
  if (first != kNone) nodes_[first].previous_sibling = node;
  first = node;
  bucket(key) = node;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + static_cast<ptrdiff_t>(node * tokens.size()));
  for (size_t group = 0; group < groups_; ++group) {
    if (units[group] != kNoUnit) attach(node, static_cast<int>(group), units[group]);
  }
  if (spine_groups_ > 0) spines_.use(node, ++now_);
  ++size_;
  return node;
}

void PrefixTree::attach(Node node, int group, UnitId unit) {
  UnitId& place = units_[node * groups_ + static_cast<size_t>(group)];
  assert(place == kNoUnit);
  const bool spine = std::cmp_less(group, spine_groups_);
  place = unit;
  pool_.retain(unit);
  pool_.set_kept(unit, spine ? Kept::kSpine : Kept::kWindow);
  if (!spine) windows_.use(node, ++now_);
}

void PrefixTree::attach_checkpoint(Node node, int slot) {
  assert(checkpoints_ && nodes_[node].checkpoint < 0);
  nodes_[node].checkpoint = slot;
  held_checkpoints_.use(node, ++now_);
}

void PrefixTree::touch(Node node) {
  // Parents are marked after their children, so that the least recently used node is a leaf.
  for (; node != kNone; node = nodes_[node].parent) spines_.use(node, ++now_);
}

void PrefixTree::touch_windows(Node node) {
  if (windows_.contains(node)) windows_.use(node, ++now_);
}

void PrefixTree::touch_checkpoint(Node node) {
  if (held_checkpoints_.contains(node)) held_checkpoints_.use(node, ++now_);
}

PrefixTree::Node PrefixTree::oldest_idle_leaf() {
  if (pool_.idle_units(Kept::kSpine) == 0) return kNone;
  // A node that is in use or has children cannot go now. It moves to the other end, so that the next search does not
  // meet it again soon.
  for (size_t looked_at = 0; looked_at < 2 * spines_.size(); ++looked_at) {
    const Node node = spines_.oldest();
    if (pool_.idle(unit(node, 0)) && nodes_[node].first_child == kNone) return node;
    spines_.use(node, ++now_);
  }
  assert(false && "a node in use follows an idle one");
  return kNone;
}

PrefixTree::Node PrefixTree::oldest_idle_window() {
  if (pool_.idle_units(Kept::kWindow) == 0) return kNone;
  for (size_t looked_at = 0; looked_at < windows_.size(); ++looked_at) {
    const Node node = windows_.oldest();
    for (size_t group = spine_groups_; group < groups_; ++group) {
      const UnitId unit = units_[node * groups_ + group];
      if (unit != kNoUnit && pool_.idle(unit)) return node;
    }
    windows_.use(node, ++now_);
  }
  assert(false && "an idle unit that no node holds");
  return kNone;
}

void PrefixTree::drop(UnitId& unit) {
  pool_.set_kept(unit, Kept::kNot);
  pool_.release(std::exchange(unit, kNoUnit));
}

bool PrefixTree::has_window(Node node) const {
  const auto begin = units_.begin() + static_cast<ptrdiff_t>(node * groups_);
  return std::any_of(begin + static_cast<ptrdiff_t>(spine_groups_), begin + static_cast<ptrdiff_t>(groups_),
                     [](UnitId unit) { return unit != kNoUnit; });
}

// Some or all units of the node were dropped.
void PrefixTree::removed_units(Node node) {
  if (!has_window(node)) windows_.remove(node);
  const bool empty =
      spine_groups_ > 0 ? unit(node, 0) == kNoUnit : !windows_.contains(node) && nodes_[node].checkpoint < 0;
  if (!empty) return;
  assert(!windows_.contains(node) && "a sequence uses a window's unit without the node's spine");
  if (nodes_[node].checkpoint >= 0) drop_checkpoint(node);
  remove(node);
}

void PrefixTree::drop_checkpoint(Node node) {
  checkpoints_->give_back(std::exchange(nodes_[node].checkpoint, -1));
  held_checkpoints_.remove(node);
}

void PrefixTree::removed_checkpoint(Node node) {
  drop_checkpoint(node);
  if (spine_groups_ == 0 && !windows_.contains(node)) remove(node);
}

void PrefixTree::remove(Node node) {
  Entry& e = nodes_[node];
  assert(e.first_child == kNone);
  if (e.previous_sibling != kNone) {
    nodes_[e.previous_sibling].next_sibling = e.next_sibling;
  } else {
    first_child_of(e.parent) = e.next_sibling;
  }
  if (e.next_sibling != kNone) nodes_[e.next_sibling].previous_sibling = e.previous_sibling;
  Node* link = &bucket(e.key);
  while (*link != node) link = &nodes_[*link].next_in_bucket;
  *link = e.next_in_bucket;
  spines_.remove(node);
  e.next_in_bucket = free_;
  free_ = node;
  --size_;
  if (removed_) removed_(e.key);
}

}  // namespace quire
