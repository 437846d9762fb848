// Carries out orders on several stages of one process.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/ranks/rank_parts.h"
#include "engine/ranks/stage_group.h"
#include "engine/step/executor.h"
#include "engine/step/local_executor.h"

namespace quire {

// Every stage has an executor with the cache of its layers, and gets every order. Results are the last stage's, which also has
// the drafter. Units and states are read and written as if one executor had them, so kept pages do not depend on the
// number of stages.
class StagesExecutor final : public Executor {
 public:
  // As LocalExecutor; shape and limits: of the whole model. layers: of each stage. The group must outlive it.
  StagesExecutor(const ModelConfig& config, const Weights& weights, const CacheShape& shape, StageGroup& group,
                 std::span<const LayerRange> layers, const MicroBatchLimits& cut, Activations activations,
                 const DecoderLimits& limits);

  int stages() const { return group_.size(); }
  LocalExecutor& stage(int stage) const { return *executors_[static_cast<size_t>(stage)]; }
  LocalExecutor& last() const { return *executors_.back(); }
  Backend& backend(int stage) { return group_.backend(stage); }
  // Bytes of rows that crossed all borders.
  uint64_t sent_bytes() const;

  void launch(const ForwardInput& input) override;
  const ForwardOutput& wait() override { return last().wait(); }
  void commit(const CacheChanges& changes) override;
  std::span<const std::byte> read(const CachePlace& place) override;
  void write(const CachePlace& place, std::span<const std::byte> bytes) override;

 private:
  StageGroup& group_;
  const RankParts parts_;
  std::vector<std::unique_ptr<LocalExecutor>> executors_;  // by stage
  std::vector<std::byte> read_;
};

}  // namespace quire
