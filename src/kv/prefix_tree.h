// Finished pages of past and running sequences, for prompts with the same beginning.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kv/page_key.h"
#include "kv/slot_pool.h"
#include "kv/unit_pool.h"
#include "kv/use_list.h"
#include "quire/types.h"

namespace quire {

// A tree of full pages. The path to a node is the text that its page's content depends on. A node holds
//   - its spine: a unit for each group that keeps all tokens,
//   - a unit for each group with a window, or none,
//   - a checkpoint: the slot of the recurrent layers' state after the page, or none.
// The tree holds one reference to each unit. A unit that no sequence uses is idle. Idle units are evicted when memory is
// needed, least recently used first: windows from any node, spines from children before parents. A sequence that uses a
// node's spine uses those of all nodes before it, and a sequence that uses a window's unit uses the node's spine; so
// every idle unit can be evicted. Checkpoints are copied, not used, and can go at any time.
//
// Without groups that keep all tokens there is no spine. Then nodes have no parents, and each lives as long as it holds
// something.
//
// A page is found by the hash of its chain of tokens (kv/page_key.h), and its own tokens are compared. A false hit
// needs two chains that collide in 128 bits *and* end in the same page. Allocates in the constructor only. Not
// thread-safe.
class PrefixTree {
 public:
  using Node = UseList::Node;  // an index; valid until the node is evicted, so at least while a sequence uses its spine
  static constexpr Node kNone = UseList::kNone;

  // Groups [0, spine_groups) keep all tokens, the next window_groups have windows. checkpoints: null, or the slots that
  // attach_checkpoint() gets, and that come back when they are evicted.
  explicit PrefixTree(UnitPool& pool, int spine_groups = 1, int window_groups = 0, SlotPool* checkpoints = nullptr);

  // The node with this key whose page holds these tokens, or kNone.
  Node find(PageKey key, std::span<const TokenId> tokens) const;
  Node find(PageKey key) const;  // whatever its tokens
  PageKey key(Node node) const { return nodes_[node].key; }
  UnitId unit(Node node, int group) const { return units_[node * groups_ + static_cast<size_t>(group)]; }  // or kNoUnit
  std::optional<int> checkpoint(Node node) const;
  size_t size() const { return size_; }
  // Called with the key of each node that is removed. Must not throw.
  void on_remove(std::function<void(PageKey)> told) { removed_ = std::move(told); }

  // For walks over the whole tree: the newest child, and the child of the same parent that is next in age; kNone: none.
  // Pages without a spine before them are the children of kNone.
  Node first_child(Node parent) const { return parent == kNone ? first_of_roots_ : nodes_[parent].first_child; }
  Node next_sibling(Node node) const { return nodes_[node].next_sibling; }

  // The child of `parent` (kNone: of the root `root`) whose page begins with the most of `tokens`, and how many.
  struct Partial {
    Node node = kNone;
    int tokens = 0;
  };
  Partial longest_partial(Node parent, PageKey root, std::span<const TokenId> tokens) const;

  // Adds a finished page that is not in the tree, after `parent` (kNone: the first page of a chain from `root`, or there
  // is no spine), with one unit per group; kNoUnit: none, only in groups with a window. Without a spine and units, a
  // checkpoint must follow.
  Node insert(Node parent, PageKey root, PageKey key, std::span<const TokenId> tokens, std::span<const UnitId> units);
  // Adds what the node lacks.
  void attach(Node node, int group, UnitId unit);
  void attach_checkpoint(Node node, int slot);

  // Marks the spines of the node and of all before it as just used.
  void touch(Node node);
  // Marks what hangs on the node as just used, if it has any.
  void touch_windows(Node node);
  void touch_checkpoint(Node node);

  // Frees one or more idle units of the node that is next in line, each after leaving(key, group, unit), and if the node
  // goes, its checkpoint after leaving_checkpoint(key, slot). Returns false if no unit is idle.
  template <class Leaving, class LeavingCheckpoint>
  bool evict(Leaving leaving, LeavingCheckpoint leaving_checkpoint) {
    const Node window = oldest_idle_window(), leaf = oldest_idle_leaf();
    if (window == kNone && leaf == kNone) return false;
    const bool whole = leaf_is_older(leaf, window);
    const Node node = whole ? leaf : window;
    for (size_t group = whole ? 0 : spine_groups_; group < groups_; ++group) {
      UnitId& unit = units_[node * groups_ + group];
      if (unit == kNoUnit || !pool_.idle(unit)) continue;
      leaving(nodes_[node].key, static_cast<int>(group), unit);
      drop(unit);
    }
    if (whole && nodes_[node].checkpoint >= 0) leaving_checkpoint(nodes_[node].key, nodes_[node].checkpoint);
    removed_units(node);
    return true;
  }
  // Calls visit(node, whole) for nodes in about the order in which evict() takes them, including nodes in use, until it returns
  // false. whole: evict() would take the node, and not only its units of groups with a window.
  template <class Visit>
  void for_each_next(Visit visit) const {
    for (Node leaf = spines_.oldest(), window = windows_.oldest(); leaf != kNone || window != kNone;) {
      const bool whole = leaf_is_older(leaf, window);
      Node& node = whole ? leaf : window;
      if (!visit(node, whole)) return;
      node = (whole ? spines_ : windows_).newer(node);
    }
  }
  // Frees the slot of the least recently used checkpoint after leaving(key, slot). Returns false if there is none.
  template <class Leaving>
  bool evict_checkpoint(Leaving leaving) {
    const Node node = held_checkpoints_.oldest();
    if (node == kNone) return false;
    leaving(nodes_[node].key, nodes_[node].checkpoint);
    removed_checkpoint(node);
    return true;
  }

 private:
  struct Entry {
    PageKey key, root;
    Node parent = kNone;
    Node first_child = kNone, next_sibling = kNone, previous_sibling = kNone;
    Node next_in_bucket = kNone;  // in a free entry: the next free one
    int checkpoint = -1;          // slot
  };

  // Of a node with a spine and one with units of windows; one of them may be kNone.
  bool leaf_is_older(Node leaf, Node window) const {
    return window == kNone || (leaf != kNone && spines_.used(leaf) < windows_.used(window));
  }
  Node oldest_idle_leaf();
  Node oldest_idle_window();
  void drop(UnitId& unit);
  void removed_units(Node node);
  void removed_checkpoint(Node node);
  void drop_checkpoint(Node node);
  void remove(Node node);
  bool has_window(Node node) const;
  Node& first_child_of(Node parent) { return parent == kNone ? first_of_roots_ : nodes_[parent].first_child; }
  Node& bucket(PageKey key) { return buckets_[key.low & (buckets_.size() - 1)]; }

  UnitPool& pool_;
  SlotPool* checkpoints_;
  size_t spine_groups_, groups_;
  std::vector<Entry> nodes_;     // as many as can hold something at a time
  std::vector<UnitId> units_;    // [node][group]
  std::vector<TokenId> tokens_;  // [node][page_tokens]
  std::vector<Node> buckets_;    // hash table by key; the size is a power of two
  UseList spines_, windows_;     // nodes that have them
  UseList held_checkpoints_;
  uint64_t now_ = 0;
  Node free_ = kNone, first_of_roots_ = kNone;
  std::function<void(PageKey)> removed_;
  size_t size_ = 0;
};

}  // namespace quire
