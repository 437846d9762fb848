#include "engine/ranks/ranks_executor.h"

#include <algorithm>
#include <cassert>

namespace quire {

RanksExecutor::RanksExecutor(const ModelConfig& config, const Weights& weights, const CacheShape& shape,
                             RankGroup& group, Activations activations, const DecoderLimits& limits)
    : group_(group), layout_(shape.layout) {
  for (int rank = 0; rank < ranks(); ++rank) {
    const CacheShape own{layout_.of_rank(rank, ranks()), shape.units, shape.states};
    executors_.push_back(
        std::make_unique<LocalExecutor>(config, weights, own, group_.backend(rank), activations, limits));
  }
}

void RanksExecutor::launch(const ForwardInput& input) {
  group_.run([&](int rank) { executors_[static_cast<size_t>(rank)]->launch(input); });
}

void RanksExecutor::commit(const CacheChanges& changes) {
  group_.run([&](int rank) { executors_[static_cast<size_t>(rank)]->commit(changes); });
}

template <class F>
void RanksExecutor::for_each_part(const CachePlace& place, F f) const {
  const size_t end = place.offset + place.size;
  for (const int layer : layout_.groups()[static_cast<size_t>(place.group)].layers) {
    size_t begin = layout_.offset_of(layer);  // in the whole unit
    for (int rank = 0; rank < group_.size(); ++rank) {
      const CacheLayout& own = executors_[static_cast<size_t>(rank)]->cache().layout();
      const LayerCache& heads = own.layers()[static_cast<size_t>(layer)];
      const size_t bytes = page_bytes(own.type(), heads);
      const size_t first = std::max(begin, place.offset), last = std::min(begin + bytes, end);
      if (first < last) {
        f(rank,
          CachePlace{.group = place.group,
                     .index = place.index,
                     .offset = own.offset_of(layer) + (first - begin),
                     .size = last - first},
          first - place.offset);
      }
      if (heads.model_kv_heads > 0) begin += bytes;  // otherwise all ranks have the same
    }
  }
}

std::span<const std::byte> RanksExecutor::read(const CachePlace& place) {
  if (place.of_state) return executors_[0]->read(place);  // all ranks have the same
  read_.assign(place.size, std::byte{0});
  for_each_part(place, [&](int rank, const CachePlace& part, size_t at) {
    std::ranges::copy(executors_[static_cast<size_t>(rank)]->read(part), read_.begin() + static_cast<ptrdiff_t>(at));
  });
  return read_;
}

void RanksExecutor::write(const CachePlace& place, std::span<const std::byte> bytes) {
  assert(bytes.size() == place.size);
  if (place.of_state) {
    for (const auto& executor : executors_) executor->write(place, bytes);
    return;
  }
  for_each_part(place, [&](int rank, const CachePlace& part, size_t at) {
    executors_[static_cast<size_t>(rank)]->write(part, bytes.subspan(at, part.size));
  });
}

}  // namespace quire
