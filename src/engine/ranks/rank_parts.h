// Where several ranks keep what one rank alone would keep in a unit of the cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ops/cache_layout.h"
#include "ops/cache_memory.h"

namespace quire {

class RankParts {
 public:
  // whole: the layout of one rank alone.
  RankParts(const CacheLayout& whole, int ranks) : whole_(whole) {
    for (int rank = 0; rank < ranks; ++rank) own_.push_back(whole.of_rank(rank, ranks));
  }

  int ranks() const { return static_cast<int>(own_.size()); }
  const CacheLayout& of(int rank) const { return own_[static_cast<size_t>(rank)]; }

  // Calls f(rank, place in its cache, where its bytes are among those of `place`) for what each rank has of a unit. place: of
  // one rank alone.
  template <class F>
  void for_each(const CachePlace& place, F f) const {
    const size_t end = place.offset + place.size;
    for (const int layer : whole_.groups()[static_cast<size_t>(place.group)].layers) {
      size_t begin = whole_.offset_of(layer);  // in the whole unit
      for (int rank = 0; rank < ranks(); ++rank) {
        const LayerCache& heads = of(rank).layers()[static_cast<size_t>(layer)];
        const size_t bytes = page_bytes(whole_.type(), heads);
        const size_t first = std::max(begin, place.offset), last = std::min(begin + bytes, end);
        if (first < last) {
          f(rank,
            CachePlace{.group = place.group,
                       .index = place.index,
                       .offset = of(rank).offset_of(layer) + (first - begin),
                       .size = last - first},
            first - place.offset);
        }
        if (heads.model_kv_heads > 0) begin += bytes;  // otherwise all ranks have the same
      }
    }
  }

 private:
  CacheLayout whole_;
  std::vector<CacheLayout> own_;  // by rank
};

}  // namespace quire
