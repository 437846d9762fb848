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

// One stage's part of a model.
struct StagePart {
  LayerRange layers;
  const Weights& weights;  // in the memory of the stage's backend; it has data for these layers, at least
  Activations activations;
};

// Every stage has an executor with the cache of its layers, and gets every order. Results are the last stage's, which also has
// the drafter. Units and states are read and written as if one executor had them, so kept pages do not depend on the
// number of stages.
class StagesExecutor final : public Executor {
 public:
  // As LocalExecutor; shape and limits: of the whole model. parts: by stage. The group must outlive it.
  StagesExecutor(const ModelConfig& config, std::span<const StagePart> parts, const CacheShape& shape,
                 StageGroup& group, const MicroBatchLimits& cut, const DecoderLimits& limits);

  int stages() const { return group_.size(); }
  LocalExecutor& stage(int stage) const { return *executors_[static_cast<size_t>(stage)]; }
  LocalExecutor& last() const { return *executors_.back(); }
  Backend& backend(int stage) { return group_.backend(stage); }
  // Bytes of rows that crossed all borders.
  uint64_t sent_bytes() const;

  void launch(const ForwardInput& input) override;
  const ForwardOutput& wait() override { return last().wait(); }
  void commit(const CacheChanges& changes) override;
  void read(const CachePlace& place, std::span<std::byte> to) override;
  void write(const CachePlace& place, std::span<const std::byte> bytes) override;

 private:
  StageGroup& group_;
  const RankParts caches_;
  std::vector<std::unique_ptr<LocalExecutor>> executors_;  // by stage
};

}  // namespace quire
