// Draws the pool of the KV cache: what each unit is used for, and by whom.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/watch/snapshot.h"
#include "kv/page_table.h"
#include "kv/unit_pool.h"

namespace quire {

// Sets units, units_per_cell and cells of `map`, with at most most_cells cells; owners are not known yet. Reuses its
// memory. Takes a few nanoseconds a unit.
void draw_units(const UnitPool& pool, PoolMap& map, size_t most_cells = PoolMap::kMostCells);

// Names the sequence that uses these pages as owner of their cells, but for cells that have one. `owner`: its index.
void draw_owner(const PageTable& pages, uint16_t owner, PoolMap& map);

}  // namespace quire
