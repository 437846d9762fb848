#include "engine/watch/prefix_shape.h"

#include <algorithm>
#include <vector>

namespace quire {
namespace {

// Sequences that use the page. A group with a window may have given its unit up.
uint32_t users_of(const PrefixTree& tree, const UnitPool& pool, int groups, PrefixTree::Node node) {
  uint32_t users = 0;
  for (int group = 0; group < groups; ++group) {
    const UnitId unit = tree.unit(node, group);
    if (unit != kNoUnit) users = std::max(users, pool.users(unit));
  }
  return users;
}

}  // namespace

void draw_prefixes(const PrefixTree& tree, const UnitPool& pool, int groups, PrefixShape& shape, size_t most_branches,
                   size_t most_pages) {
  shape.pages = tree.size();
  shape.branches.clear();
  shape.complete = true;
  struct Place {  // children that are still to be drawn
    PrefixTree::Node next;
    int32_t parent;
  };
  std::vector<Place> places = {{tree.first_child(PrefixTree::kNone), -1}};
  size_t pages = 0;
  while (!places.empty()) {
    Place& place = places.back();
    PrefixTree::Node node = place.next;
    if (node == PrefixTree::kNone) {
      places.pop_back();
      continue;
    }
    if (shape.branches.size() >= most_branches || pages >= most_pages) {
      shape.complete = false;
      return;
    }
    place.next = tree.next_sibling(node);
    PrefixBranch branch{.parent = place.parent, .pages = 1, .users = users_of(tree, pool, groups, node)};
    PrefixTree::Node child = tree.first_child(node);
    while (child != PrefixTree::kNone && tree.next_sibling(child) == PrefixTree::kNone &&
           pages + branch.pages < most_pages && users_of(tree, pool, groups, child) == branch.users) {
      ++branch.pages;
      node = child;
      child = tree.first_child(node);
    }
    pages += branch.pages;
    shape.branches.push_back(branch);
    if (child != PrefixTree::kNone) places.push_back({child, static_cast<int32_t>(shape.branches.size()) - 1});
  }
}

}  // namespace quire
