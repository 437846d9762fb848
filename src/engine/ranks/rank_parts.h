// Where several ranks or stages keep what one rank alone would keep in a unit or a state of the cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "ops/cache_layout.h"
#include "ops/cache_memory.h"
#include "ops/stage_link.h"

namespace quire {

// The layouts of stages. A drafter's layers follow the model's, and are the last stage's.
inline std::vector<CacheLayout> stage_layouts(const CacheLayout& whole, std::span<const LayerRange> stages) {
  std::vector<CacheLayout> own;
  for (const LayerRange& layers : stages) {
    const bool last = &layers == &stages.back();
    own.push_back(whole.of_layers(layers.begin, last ? static_cast<int>(whole.layers().size()) : layers.end));
  }
  return own;
}

class RankParts {
 public:
  // whole: the layout of one rank alone.
  RankParts(const CacheLayout& whole, int ranks) : whole_(whole) {
    for (int rank = 0; rank < ranks; ++rank) own_.push_back(whole.of_rank(rank, ranks));
  }
  // own: of each stage.
  RankParts(const CacheLayout& whole, std::vector<CacheLayout> own) : whole_(whole), own_(std::move(own)) {}

  int ranks() const { return static_cast<int>(own_.size()); }
  const CacheLayout& of(int rank) const { return own_[static_cast<size_t>(rank)]; }

  // Calls f(rank, place in its cache, where its bytes are among those of `place`) for what each rank has of a unit or a state.
  // place: of one rank alone.
  template <class F>
  void for_each(const CachePlace& place, F f) const {
    if (place.of_state) {
      for (int layer = 0; std::cmp_less(layer, whole_.layers().size()); ++layer) {
        const LayerCache& cache = whole_.layers()[static_cast<size_t>(layer)];
        if (cache.kind == LayerCache::Kind::kState) for_each_of_state(place, layer, f);
      }
      return;
    }
    for (const int layer : whole_.groups()[static_cast<size_t>(place.group)].layers) {
      size_t begin = whole_.offset_of(layer);  // in the whole unit
      for (int rank = 0; rank < ranks(); ++rank) {
        const LayerCache& heads = of(rank).layers()[static_cast<size_t>(layer)];
        const size_t bytes = page_bytes(whole_.type(), heads);
        give(place, begin, bytes, rank, layer, f);
        if (heads.model_kv_heads > 0) begin += bytes;  // otherwise all ranks have the same
      }
    }
  }

 private:
  template <class F>
  void for_each_of_state(const CachePlace& place, int layer, F f) const {
    for (int rank = 0; rank < ranks(); ++rank)
      give(place, whole_.offset_of(layer), of(rank).layers()[static_cast<size_t>(layer)].state_bytes, rank, layer, f);
  }

  // What `place` has of the `bytes` that the rank keeps of a layer; they begin at `begin` for one rank alone.
  template <class F>
  void give(const CachePlace& place, size_t begin, size_t bytes, int rank, int layer, F f) const {
    const size_t first = std::max(begin, place.offset), last = std::min(begin + bytes, place.offset + place.size);
    if (first >= last) return;
    f(rank,
      CachePlace{.of_state = place.of_state,
                 .group = place.group,
                 .index = place.index,
                 .offset = of(rank).offset_of(layer) + (first - begin),
                 .size = last - first},
      first - place.offset);
  }

  CacheLayout whole_;
  std::vector<CacheLayout> own_;  // by rank
};

}  // namespace quire
