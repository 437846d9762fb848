// Groups the routes of rows by expert. A route is a row and one of its experts; routes are numbered row by row. The order is
// the same on every run: an expert's routes ascend.
//
// Routes are cut into tiles. A route's place is where its expert begins, plus the expert's routes in earlier tiles, plus
// those that come earlier in its own tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// Where the routes of a step lie, in memory of the device.
struct RoutesAt {
  static constexpr int kTile = 512;   // routes
  static constexpr int kRunRows = 8;  // an expert's rows begin at a multiple of this many
  int experts, used;
  int routes;  // rows * used
  int unused = 0;
  Global<int32_t> chosen;     // [routes]
  Global<float> weights;      // [routes]
  Global<int32_t> positions;  // [routes]: the gathered row with the result
  Global<int32_t> counts;     // [experts]: rows
  Global<int32_t> offsets;    // [experts + 1]: gathered rows; the last: of all experts, padding included
  Global<int32_t> sources;    // [gathered rows]: the row of x; -1: padding
  Global<int32_t> active;     // [1]: experts that have rows
  Global<int32_t> tiles;      // [tiles][experts]: an expert's routes in the tile, then in earlier tiles

  DEVICE int tile_count() const { return (routes + kTile - 1) / kTile; }
};

// Each is what a block of kTile threads does. Shared memory: shared_bytes().
struct RouteGrouping {
  static constexpr int kThreads = RoutesAt::kTile;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int shared_bytes(int experts) { return (experts > kWarps ? experts : kWarps) * 4; }
  RoutesAt at;

  static DEVICE int count_bits(uint32_t x) {
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    return static_cast<int>((((x + (x >> 4)) & 0x0F0F0F0Fu) * 0x01010101u) >> 24);
  }

  // positions = how many earlier routes of the tile have the same expert; counts those of each expert.
  DEVICE void count(int tile) const {
    const Shared<int32_t> counts = shared<int32_t>(0);
    for (int e = thread(); e < at.experts; e += kThreads) counts[e] = 0;
    const int first = tile * kThreads, route = first + thread();
    const int expert = route < at.routes ? int(at.chosen[route]) : -1;
    // Lanes with the same expert agree in each of its bits.
    uint32_t same = ballot(expert >= 0);
    for (int bit = 1; bit < at.experts; bit *= 2) {
      const bool has = (expert & bit) != 0;
      const uint32_t having = ballot(has);
      same &= has ? having : ~having;
    }
    const int before = count_bits(same & ((1u << lane()) - 1));
    sync_block();
    // The warps one after the other.
    for (int w = 0; w < kWarps && first + w * 32 < at.routes; ++w) {
      if (w == warp()) {
        const int in_warps = expert >= 0 ? int(counts[expert]) : 0;
        sync_warp();
        if (expert >= 0) {
          at.positions[route] = in_warps + before;
          if (before == 0) counts[expert] = in_warps + count_bits(same);
        }
      }
      sync_block();
    }
    const Global<int32_t> of_tile = at.tiles + static_cast<size_t>(tile) * static_cast<size_t>(at.experts);
    for (int e = thread(); e < at.experts; e += kThreads) of_tile[e] = counts[e];
  }

  // The sum of the values of earlier threads, and of all.
  struct Sums {
    int before, all;
  };
  static DEVICE Sums sums_of(int value) {
    int sum = value;
    UNROLL
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = shuffle_up(sum, distance);
      if (lane() >= distance) sum += other;
    }
    const Shared<int32_t> of_warps = shared<int32_t>(0);
    sync_block();  // what the memory held before has been read
    if (lane() == 31) of_warps[warp()] = sum;
    sync_block();
    Sums sums{sum - value, 0};
    for (int w = 0; w < kWarps; ++w) {
      const int of_warp = of_warps[w];
      if (w < warp()) sums.before += of_warp;
      sums.all += of_warp;
    }
    return sums;
  }

  // Where each expert begins, and its padding.
  DEVICE void find_offsets() const {
    int begin = 0, active = 0;
    for (int first = 0; first < at.experts; first += kThreads) {
      const int expert = first + thread();
      int rows = 0;
      if (expert < at.experts) {
        const int tiles = at.tile_count();
        for (int tile = 0; tile < tiles; ++tile) {
          const size_t i = static_cast<size_t>(tile) * static_cast<size_t>(at.experts) + expert;
          const int of_tile = at.tiles[i];
          at.tiles[i] = rows;
          rows += of_tile;
        }
      }
      const int padded = (rows + RoutesAt::kRunRows - 1) / RoutesAt::kRunRows * RoutesAt::kRunRows;
      const Sums runs = sums_of(padded), having = sums_of(rows > 0 ? 1 : 0);
      if (expert < at.experts) {
        at.counts[expert] = rows;
        at.offsets[expert] = begin + runs.before;
        for (int i = rows; i < padded; ++i) at.sources[begin + runs.before + i] = -1;
      }
      begin += runs.all;
      active += having.all;
    }
    if (thread() == 0) {
      at.offsets[at.experts] = begin;
      at.active[0] = active;
    }
  }

  DEVICE void place(int tile) const {
    const int route = tile * kThreads + thread();
    if (route >= at.routes) return;
    const int expert = at.chosen[route];
    const size_t in_tiles = static_cast<size_t>(tile) * static_cast<size_t>(at.experts) + expert;
    const int position = at.offsets[expert] + at.tiles[in_tiles] + at.positions[route];
    at.positions[route] = position;
    at.sources[position] = route / at.used;
  }
};

// One tile: all at once. Grid: 1.
struct GroupRoutes {
  static constexpr const char* kName = "group_routes";
  static constexpr int kThreads = RouteGrouping::kThreads;
  RouteGrouping grouping;

  DEVICE void operator()() const {
    grouping.count(0);
    sync_block();
    grouping.find_offsets();
    sync_block();
    grouping.place(0);
  }
};

// Several tiles. Grid: x: tiles.
struct CountRoutes {
  static constexpr const char* kName = "count_routes";
  static constexpr int kThreads = RouteGrouping::kThreads;
  RouteGrouping grouping;
  DEVICE void operator()() const { grouping.count(block_x()); }
};
// Grid: 1.
struct FindRouteOffsets {
  static constexpr const char* kName = "find_route_offsets";
  static constexpr int kThreads = RouteGrouping::kThreads;
  RouteGrouping grouping;
  DEVICE void operator()() const { grouping.find_offsets(); }
};
// Grid: x: tiles.
struct PlaceRoutes {
  static constexpr const char* kName = "place_routes";
  static constexpr int kThreads = RouteGrouping::kThreads;
  RouteGrouping grouping;
  DEVICE void operator()() const { grouping.place(block_x()); }
};

// total += bytes for each expert that has rows. Grid: 1.
struct AddExpertBytes {
  static constexpr const char* kName = "add_expert_bytes";
  static constexpr int kThreads = 32;
  Global<const int32_t> active;
  uint64_t bytes;
  Global<uint64_t> total;
  DEVICE void operator()() const {
    if (thread() == 0) total[0] = total[0] + static_cast<uint64_t>(active[0]) * bytes;
  }
};

}  // namespace quire::cuda
