#include "engine/ranks/stages_executor.h"

#include <algorithm>
#include <cassert>

#include "model/stages/cut_layers.h"

namespace quire {
namespace {

std::vector<LayerRange> layers_of(std::span<const StagePart> parts) {
  std::vector<LayerRange> layers;
  for (const StagePart& part : parts) layers.push_back(part.layers);
  return layers;
}

}  // namespace

StagesExecutor::StagesExecutor(const ModelConfig& config, std::span<const StagePart> parts, const CacheShape& shape,
                               StageGroup& group, const MicroBatchLimits& cut, const DecoderLimits& limits)
    : group_(group), caches_(shape.layout, stage_layouts(shape.layout, layers_of(parts))) {
  for (int stage = 0; stage < stages(); ++stage) {
    const StagePart& part = parts[static_cast<size_t>(stage)];
    executors_.push_back(std::make_unique<LocalExecutor>(
        config, part.weights, CacheShape{caches_.of(stage), shape.units, shape.states}, group_.backend(stage),
        part.activations, stage_limits(limits, is_last(config, part.layers)),
        StageWork{part.layers, &group_.link(stage), cut}));
  }
}

uint64_t StagesExecutor::sent_bytes() const {
  uint64_t bytes = 0;
  for (int stage = 0; stage < stages(); ++stage) bytes += group_.link(stage).sent_bytes();
  return bytes;
}

void StagesExecutor::launch(const ForwardInput& input) {
  group_.run([&](int stage) { executors_[static_cast<size_t>(stage)]->launch(input); });
  if (input.by_drafter) return;
  for (const auto& executor : executors_)
    if (executor != executors_.back()) last().add_expert_bytes(executor->wait().expert_bytes);
}

void StagesExecutor::commit(const CacheChanges& changes) {
  group_.run([&](int stage) { executors_[static_cast<size_t>(stage)]->commit(changes); });
}

void StagesExecutor::read(const CachePlace& place, std::span<std::byte> to) {
  assert(to.size() == place.size);
  std::ranges::fill(to, std::byte{0});
  caches_.for_each(place, [&](int stage, const CachePlace& part, size_t at) {
    executors_[static_cast<size_t>(stage)]->read(part, to.subspan(at, part.size));
  });
}

void StagesExecutor::write(const CachePlace& place, std::span<const std::byte> bytes) {
  assert(bytes.size() == place.size);
  caches_.for_each(place, [&](int stage, const CachePlace& part, size_t at) {
    executors_[static_cast<size_t>(stage)]->write(part, bytes.subspan(at, part.size));
  });
}

}  // namespace quire
