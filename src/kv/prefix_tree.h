// Finished pages of past and running sequences, for prompts with the same beginning.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kv/page_key.h"
#include "kv/page_pool.h"
#include "quire/types.h"

namespace quire {

// A tree of full pages. The path to a node is the text that its page's content depends on. The tree holds one reference
// to each page. A page that no sequence uses is idle; idle pages are evicted when memory is needed, least recently used
// first, children before parents. A sequence that uses a page uses all pages before it, so every idle page can be
// evicted.
//
// A page is found by the hash of its chain of tokens (kv/page_key.h), and its own tokens are compared. A false hit
// needs two chains that collide in 128 bits *and* end in the same page. Allocates in the constructor only. Not
// thread-safe.
class PrefixTree {
 public:
  using Node = uint32_t;  // an index; valid until the page is evicted, so at least while a sequence uses it
  static constexpr Node kNone = UINT32_MAX;

  explicit PrefixTree(PagePool& pool);

  // The node with this key whose page holds these tokens, or kNone.
  Node find(PageKey key, std::span<const TokenId> tokens) const;
  PageId page(Node node) const { return nodes_[node].page; }
  size_t size() const { return size_; }

  // The child of `parent` (kNone: of the root `root`) whose page begins with the most of `tokens`, and how many.
  struct Partial {
    Node node = kNone;
    int tokens = 0;
  };
  Partial longest_partial(Node parent, PageKey root, std::span<const TokenId> tokens) const;

  // Adds a finished page that is not in the tree, after `parent` (kNone: the first page of a chain from `root`).
  Node insert(Node parent, PageKey root, PageKey key, std::span<const TokenId> tokens, PageId page);

  // Marks the node and all before it as just used.
  void touch(Node node);

  // Removes the idle page that is next in line and frees it, after leaving(key, page). Returns false if no page is
  // idle.
  template <class Leaving>
  bool evict(Leaving leaving) {
    const Node node = next_to_evict();
    if (node == kNone) return false;
    leaving(nodes_[node].key, nodes_[node].page);
    remove(node);
    return true;
  }

 private:
  struct Entry {
    PageKey key, root;
    PageId page{};
    Node parent = kNone;
    Node first_child = kNone, next_sibling = kNone, previous_sibling = kNone;
    Node next_in_bucket = kNone;        // in a free entry: the next free one
    Node older = kNone, newer = kNone;  // by use
  };

  Node next_to_evict();
  void remove(Node node);
  Node& first_child_of(Node parent) { return parent == kNone ? first_of_roots_ : nodes_[parent].first_child; }
  Node& bucket(PageKey key) { return buckets_[key.low & (buckets_.size() - 1)]; }
  void unlink_use(Node node);
  void append_use(Node node);

  PagePool& pool_;
  std::vector<Entry> nodes_;     // one per page of the pool
  std::vector<TokenId> tokens_;  // [node][page_tokens]
  std::vector<Node> buckets_;    // hash table by key; the size is a power of two
  Node free_ = kNone, first_of_roots_ = kNone, oldest_ = kNone, newest_ = kNone;
  size_t size_ = 0;
};

}  // namespace quire
