// The shape of the prefix tree, without the texts of its pages.
#pragma once

#include <cstddef>

#include "engine/watch/snapshot.h"
#include "kv/prefix_tree.h"
#include "kv/unit_pool.h"

namespace quire {

// Writes to `shape`, reusing its memory. The walk ends after most_branches or most_pages, so its time is bounded.
// groups: units of a page.
void draw_prefixes(const PrefixTree& tree, const UnitPool& pool, int groups, PrefixShape& shape,
                   size_t most_branches = PrefixShape::kMostBranches, size_t most_pages = PrefixShape::kMostPages);

}  // namespace quire
