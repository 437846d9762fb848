// Where the ranks, or stages, of this process compute and keep what they read, on machines with several NUMA nodes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/memory_nodes.h"
#include "model/weights.h"
#include "ops/stage_link.h"

namespace quire {

class Placement {
 public:
  Placement() = default;  // anywhere
  // On nodes of their own, or several on a node.
  Placement(std::shared_ptr<const MemoryNodes> nodes, int parts) : nodes_(std::move(nodes)), parts_(parts) {}

  explicit operator bool() const { return nodes_ != nullptr; }
  const MemoryNodes& nodes() const { return *nodes_; }
  NodeRange of(int part) const { return nodes_of_part(part, parts_, nodes_->size()); }

  // What a part's threads do first.
  std::function<void()> thread_start(int part) const;
  // Keeps the calling thread on a part's nodes while it lives.
  MemoryNodes::Visit visit(int part) const { return {nodes_.get(), nodes_ ? of(part) : NodeRange()}; }

 private:
  std::shared_ptr<const MemoryNodes> nodes_;
  int parts_ = 1;
};

// EngineOptions::numa, for so many ranks or stages: with "auto", on the nodes of this machine, if it has several.
Placement place_parts(std::string_view numa, int parts);
// For one rank: logs that several would help, if this machine has several nodes and `numa` is "auto".
void suggest_ranks(std::string_view numa);

// Moves the weights that each rank reads to its nodes. Returns how many bytes; 0 if the system refuses, which is logged.
size_t place_by_ranks(const ModelConfig& config, const Weights& weights, const Placement& placement, int ranks);
// Likewise for stages that have these layers.
size_t place_by_stages(const ModelConfig& config, const Weights& weights, const Placement& placement,
                       std::span<const LayerRange> layers);

}  // namespace quire
