#include "engine/watch/pool_map.h"

#include <algorithm>
#include <limits>

namespace quire {
namespace {

PoolCell cell_of(const UnitPool& pool, UnitId unit) {
  const uint32_t references = pool.references(unit);
  if (references == 0) return {};
  const uint32_t users = pool.users(unit);
  return {.use = users == 0   ? UnitUse::kCached
                 : users == 1 ? UnitUse::kOwned
                              : UnitUse::kShared,
          .users = static_cast<uint16_t>(std::min<uint32_t>(users, std::numeric_limits<uint16_t>::max()))};
}

}  // namespace

void draw_units(const UnitPool& pool, PoolMap& map, size_t most_cells) {
  map.units = pool.unit_count();
  map.units_per_cell = static_cast<uint32_t>(std::max<size_t>(1, (map.units + most_cells - 1) / most_cells));
  map.cells.assign((map.units + map.units_per_cell - 1) / map.units_per_cell, {});
  for (uint32_t unit = 0; unit < map.units; ++unit) {
    const PoolCell cell = cell_of(pool, UnitId{static_cast<int32_t>(unit)});
    PoolCell& shown = map.cells[unit / map.units_per_cell];
    if (cell.use > shown.use || cell.users > shown.users) shown = cell;
  }
}

void draw_owner(const PageTable& pages, uint16_t owner, PoolMap& map) {
  for (int group = 0; group < pages.groups(); ++group) {
    for (int page = pages.first_held(group); page < pages.pages(); ++page) {
      const UnitId unit = pages.unit(group, page);
      if (unit == kNoUnit) continue;
      PoolCell& cell = map.cells[index(unit) / map.units_per_cell];
      if (cell.owner == PoolCell::kNobody) cell.owner = owner;
    }
  }
}

}  // namespace quire
