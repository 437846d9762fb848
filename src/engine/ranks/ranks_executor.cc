#include "engine/ranks/ranks_executor.h"

#include <algorithm>
#include <cassert>

namespace quire {

RanksExecutor::RanksExecutor(const ModelConfig& config, std::span<const Weights* const> weights,
                             const CacheShape& shape, RankGroup& group, Activations activations,
                             const DecoderLimits& limits)
    : group_(group), parts_(shape.layout, group.size()) {
  for (int rank = 0; rank < ranks(); ++rank) {
    const CacheShape own{parts_.of(rank), shape.units, shape.states};
    executors_.push_back(std::make_unique<LocalExecutor>(config, *weights[static_cast<size_t>(rank)], own,
                                                         group_.backend(rank), activations, limits));
  }
}

void RanksExecutor::launch(const ForwardInput& input) {
  group_.run([&](int rank) {
    executors_[static_cast<size_t>(rank)]->launch(input);
    executors_[static_cast<size_t>(rank)]->wait();  // while the ranks can still give up together
  });
}

void RanksExecutor::commit(const CacheChanges& changes) {
  group_.run([&](int rank) { executors_[static_cast<size_t>(rank)]->commit(changes); });
}

void RanksExecutor::read(const CachePlace& place, std::span<std::byte> to) {
  assert(to.size() == place.size);
  if (place.of_state) return executors_[0]->read(place, to);  // all ranks have the same
  std::ranges::fill(to, std::byte{0});
  parts_.for_each(place, [&](int rank, const CachePlace& part, size_t at) {
    executors_[static_cast<size_t>(rank)]->read(part, to.subspan(at, part.size));
  });
}

void RanksExecutor::write(const CachePlace& place, std::span<const std::byte> bytes) {
  assert(bytes.size() == place.size);
  if (place.of_state) {
    for (const auto& executor : executors_) executor->write(place, bytes);
    return;
  }
  parts_.for_each(place, [&](int rank, const CachePlace& part, size_t at) {
    executors_[static_cast<size_t>(rank)]->write(part, bytes.subspan(at, part.size));
  });
}

}  // namespace quire
