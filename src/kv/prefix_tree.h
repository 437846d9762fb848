// Finished pages of past and running sequences, so that a prompt that begins alike need not be computed again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kv/page_key.h"
#include "kv/page_pool.h"
#include "quire/types.h"

namespace quire {

// A tree of full pages: the path to a node is the tokens that its page's content depends on. It holds one reference to
// each page. A page that no sequence uses is idle and is evicted when its memory is needed, least recently used first,
// leaves before what they hang on. A sequence that uses a page uses all pages before it too, so every idle page can be
// had.
//
// A page is found by the hash of its chain of tokens (kv/page_key.h), and its own tokens are compared; so a hit means
// what its key says unless two chains collide in 128 bits *and* end in the same page. Memory is taken in the
// constructor. Not thread-safe.
class PrefixTree {
 public:
  using Node = uint32_t;  // index; a node lives until its page is evicted: as long as a sequence refers to the page
  static constexpr Node kNone = UINT32_MAX;

  explicit PrefixTree(PagePool& pool);

  // The node whose chain has this key and that ends in these tokens; kNone: there is none.
  Node find(PageKey key, std::span<const TokenId> tokens) const;
  PageId page(Node node) const { return nodes_[node].page; }
  size_t size() const { return size_; }

  // The child of `parent` (kNone: of the root `root`) whose page begins with most of `tokens`, and how many.
  struct Partial {
    Node node = kNone;
    int tokens = 0;
  };
  Partial longest_partial(Node parent, PageKey root, std::span<const TokenId> tokens) const;

  // A finished page, not in the tree yet, behind `parent` (kNone: the first page of a chain that begins at `root`).
  Node insert(Node parent, PageKey root, PageKey key, std::span<const TokenId> tokens, PageId page);

  // The node and all before it have just been used.
  void touch(Node node);

  // Takes the idle page that is due out of the tree and frees it, after `leaving(key, page)` has seen it; false when no
  // page is idle.
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
    Node next_in_bucket = kNone;        // of free entries: the next free one
    Node older = kNone, newer = kNone;  // by use
  };

  Node next_to_evict();
  void remove(Node node);
  Node& first_child_of(Node parent) { return parent == kNone ? first_of_roots_ : nodes_[parent].first_child; }
  Node& bucket(PageKey key) { return buckets_[key.low & (buckets_.size() - 1)]; }
  void unlink_use(Node node);
  void append_use(Node node);

  PagePool& pool_;
  std::vector<Entry> nodes_;     // one a page of the pool
  std::vector<TokenId> tokens_;  // [node][page_tokens]
  std::vector<Node> buckets_;    // of a hash table by key; a power of two
  Node free_ = kNone, first_of_roots_ = kNone, oldest_ = kNone, newest_ = kNone;
  size_t size_ = 0;
};

}  // namespace quire
