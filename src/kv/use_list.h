// Orders the nodes of a tree by their last use.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

// A doubly linked list through an array. Allocates in the constructor only; every call is O(1).
class UseList {
 public:
  using Node = uint32_t;  // index, below the count given to the constructor
  static constexpr Node kNone = UINT32_MAX;

  explicit UseList(size_t nodes) : links_(nodes) {}

  size_t size() const { return size_; }
  bool contains(Node node) const { return links_[node].used != 0; }
  Node oldest() const { return oldest_; }                       // kNone: empty
  Node newer(Node node) const { return links_[node].newer; }    // the next one in age; kNone: it is the newest
  uint64_t used(Node node) const { return links_[node].used; }  // when

  // Makes the node the newest, whether it is in the list or not. `now` is positive and never falls.
  void use(Node node, uint64_t now) {
    assert(now > 0);
    remove(node);
    links_[node] = {newest_, kNone, now};
    (newest_ != kNone ? links_[newest_].newer : oldest_) = node;
    newest_ = node;
    ++size_;
  }
  // Removes the node, if it is in the list.
  void remove(Node node) {
    const Links l = links_[node];
    if (l.used == 0) return;
    (l.older != kNone ? links_[l.older].newer : oldest_) = l.newer;
    (l.newer != kNone ? links_[l.newer].older : newest_) = l.older;
    links_[node] = {};
    --size_;
  }

 private:
  struct Links {
    Node older = kNone, newer = kNone;
    uint64_t used = 0;  // 0: not in the list
  };

  std::vector<Links> links_;
  Node oldest_ = kNone, newest_ = kNone;
  size_t size_ = 0;
};

}  // namespace quire
