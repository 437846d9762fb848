#include "engine/ranks/placement.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <utility>

#include "base/memory.h"
#include "model/tensors.h"
#include "ops/communicator.h"

namespace quire {
namespace {

// Moves huge pages, each to the part that has its middle, until the system refuses.
class Mover {
 public:
  Mover(const Placement& placement, const Weights& weights) : placement_(placement) {
    const std::span<const std::byte> all =
        weights.mapped ? weights.mapped->bytes()
                       : std::span<const std::byte>(weights.memory.data(), weights.memory.size());
    begin_ = reinterpret_cast<uintptr_t>(all.data());
    end_ = begin_ + all.size();
  }

  // Panels of a matrix, to the nodes of a part.
  void move(const PackedMatrix& matrix, Share panels, int part) {
    if (!matrix.data || error_ != 0) return;
    const uintptr_t begin = border(matrix.panel(panels.begin)), end = border(matrix.panel(panels.end));
    if (begin == end) return;
    error_ = placement_.nodes().move({reinterpret_cast<const std::byte*>(begin), end - begin}, placement_.of(part));
    if (error_ == 0) moved_ += end - begin;
  }

  size_t end() const {
    if (error_ == 0) {
      spdlog::info("--numa: {} MiB of weights moved to the {} NUMA nodes that compute with them", moved_ >> 20,
                   placement_.nodes().size());
      return moved_;
    }
    spdlog::warn("--numa: the system does not move the weights to their NUMA nodes: {}; in a container, allow SYS_NICE",
                 std::generic_category().message(error_));
    return 0;
  }

 private:
  uintptr_t border(const std::byte* address) const {
    return std::clamp((reinterpret_cast<uintptr_t>(address) + kHugePage / 2) / kHugePage * kHugePage, begin_, end_);
  }

  const Placement& placement_;
  uintptr_t begin_, end_;  // of all weights
  size_t moved_ = 0;
  int error_ = 0;
};

}  // namespace

std::function<void()> Placement::thread_start(int part) const {
  if (!nodes_) return {};
  return [nodes = nodes_, range = of(part)] { nodes->run_on(range); };
}

Placement place_parts(std::string_view numa, int parts) {
  if (numa == "off" || parts == 1) return {};
  auto nodes = std::make_shared<const MemoryNodes>();
  if (nodes->size() == 1) return {};
  return {std::move(nodes), parts};
}

void suggest_ranks(std::string_view numa) {
  if (numa == "off") return;
  if (const MemoryNodes nodes; nodes.size() > 1)
    spdlog::info(
        "this machine has {0} NUMA nodes: with -tp {0}, each reads its share of the weights from its own memory",
        nodes.size());
}

size_t place_by_ranks(const ModelConfig& config, const Weights& weights, const Placement& placement, int ranks) {
  Mover mover(placement, weights);
  for_each_matrix(config, weights, [&](const Slot& slot, const Linear& linear) {
    if (is_table(slot.tensor)) return;
    for (int rank = 0; rank < ranks; ++rank)
      mover.move(linear.weight, share_of(linear.weight.panels(), rank, ranks), rank);
  });
  return mover.end();
}

size_t place_by_stages(const ModelConfig& config, const Weights& weights, const Placement& placement,
                       std::span<const LayerRange> layers) {
  Mover mover(placement, weights);
  for_each_matrix(config, weights, [&](const Slot& slot, const Linear& linear) {
    const auto has_it = [&](const LayerRange& range) { return slot.layer < range.end; };
    const int last = static_cast<int>(layers.size()) - 1;
    int stage = is_input(slot.tensor) ? 0 : last;
    if (slot.layer >= 0) stage = static_cast<int>(std::ranges::find_if(layers, has_it) - layers.begin());
    mover.move(linear.weight, {0, linear.weight.panels()}, std::min(stage, last));
  });
  return mover.end();
}

}  // namespace quire
