// Carries out orders on several ranks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/ranks/rank_group.h"
#include "engine/ranks/rank_parts.h"
#include "engine/step/executor.h"
#include "engine/step/local_executor.h"

namespace quire {

// Every rank has an executor with its share of the cache, and gets every order. Results are the first rank's. A unit is read
// and written as a single rank's: the heads of all ranks in the layout of the whole model, so what is kept of a unit
// does not depend on the number of ranks.
class RanksExecutor final : public Executor {
 public:
  // As LocalExecutor; shape: of the whole model. weights: by rank, in memory of its backend; ranks of the processor may have the
  // same. The group must outlive it.
  RanksExecutor(const ModelConfig& config, std::span<const Weights* const> weights, const CacheShape& shape,
                RankGroup& group, Activations activations, const DecoderLimits& limits);

  int ranks() const { return group_.size(); }
  LocalExecutor& rank(int rank) const { return *executors_[static_cast<size_t>(rank)]; }
  Backend& backend(int rank) { return group_.backend(rank); }
  // What the first rank has received.
  const GatherCounts& gathered() const { return group_.received(0); }

  void launch(const ForwardInput& input) override;
  const ForwardOutput& wait() override { return executors_[0]->wait(); }
  bool picks_logits() const override { return executors_[0]->picks_logits(); }
  void commit(const CacheChanges& changes) override;
  void read(const CachePlace& place, std::span<std::byte> to) override;
  void write(const CachePlace& place, std::span<const std::byte> bytes) override;

 private:
  RankGroup& group_;
  const RankParts parts_;
  std::vector<std::unique_ptr<LocalExecutor>> executors_;  // by rank
};

}  // namespace quire
