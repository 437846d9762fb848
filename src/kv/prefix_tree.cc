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

}  // namespace

PrefixTree::PrefixTree(PagePool& pool)
    : pool_(pool),
      nodes_(pool.page_count()),
      tokens_(size_t{pool.page_count()} * static_cast<size_t>(pool.page_tokens())),
      buckets_(std::bit_ceil(size_t{pool.page_count()} + 1), kNone) {
  for (Node node = pool.page_count(); node-- > 0;) {
    nodes_[node].next_in_bucket = free_;
    free_ = node;
  }
}

PrefixTree::Node PrefixTree::find(PageKey key, std::span<const TokenId> tokens) const {
  assert(std::cmp_equal(tokens.size(), pool_.page_tokens()));
  for (Node node = buckets_[key.low & (buckets_.size() - 1)]; node != kNone; node = nodes_[node].next_in_bucket) {
    if (nodes_[node].key != key) continue;
    return std::equal(tokens.begin(), tokens.end(), tokens_.begin() + static_cast<ptrdiff_t>(node * tokens.size()))
               ? node
               : kNone;
  }
  return kNone;
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
                                    PageId page) {
  assert(free_ != kNone && "more pages in the tree than in the pool");
  assert(find(key, tokens) == kNone);
  const Node node = free_;
  free_ = nodes_[node].next_in_bucket;
  Node& first = first_child_of(parent);
  nodes_[node] = {.key = key,
                  .root = root,
                  .page = page,
                  .parent = parent,
                  .first_child = kNone,
                  .next_sibling = first,
                  .previous_sibling = kNone,
                  .next_in_bucket = bucket(key)};
  if (first != kNone) nodes_[first].previous_sibling = node;
  first = node;
  bucket(key) = node;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + static_cast<ptrdiff_t>(node * tokens.size()));
  append_use(node);
  pool_.retain(page);
  pool_.set_cached(page, true);
  ++size_;
  return node;
}

void PrefixTree::touch(Node node) {
  // Parents are marked after their children, so that the least recently used node is a leaf.
  for (; node != kNone; node = nodes_[node].parent) {
    unlink_use(node);
    append_use(node);
  }
}

PrefixTree::Node PrefixTree::next_to_evict() {
  // A node that is in use or has children cannot go now. It moves to the other end, so that the next search does not
  // meet it again soon.
  for (size_t looked_at = 0; looked_at < 2 * size_; ++looked_at) {
    const Node node = oldest_;
    if (pool_.idle(nodes_[node].page) && nodes_[node].first_child == kNone) return node;
    unlink_use(node);
    append_use(node);
  }
  assert(pool_.idle_pages() == 0);
  return kNone;
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
  unlink_use(node);
  pool_.set_cached(e.page, false);
  pool_.release(e.page);
  e.next_in_bucket = free_;
  free_ = node;
  --size_;
}

void PrefixTree::unlink_use(Node node) {
  const Entry& e = nodes_[node];
  (e.older != kNone ? nodes_[e.older].newer : oldest_) = e.newer;
  (e.newer != kNone ? nodes_[e.newer].older : newest_) = e.older;
}

void PrefixTree::append_use(Node node) {
  nodes_[node].older = newest_;
  nodes_[node].newer = kNone;
  (newest_ != kNone ? nodes_[newest_].newer : oldest_) = node;
  newest_ = node;
}

}  // namespace quire
