// Computes the steps of a recording again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/ranks/processes_executor.h"
#include "engine/ranks/rank_group.h"
#include "engine/runtime.h"
#include "engine/step/executor.h"
#include "engine/step/recording.h"

namespace quire {

// A row whose logits are not the recorded ones.
struct ReplayDifference {
  SequenceId sequence{};
  int position = 0;                  // position of the row's token
  TokenIds recorded;                 // the tokens that the sequence got from the step
  TokenId most_probable = kNoToken;  // after the row, now
};

class Replay {
 public:
  // With a cache of its own, of the recorded size. The arguments must outlive it. ranks: that compute; more than one on the
  // processor only. Throws Error if the memory is short.
  Replay(const RecordingHeader& header, const Model& model, Runtime& runtime, int ranks = 1);
  // With ranks that are processes. Those other than rank 0 follow().
  Replay(const RecordingHeader& header, const Model& model, Runtime& runtime, ProcessGroup& processes, double patience);

  // Computes what rank 0 replays. Throws Error: a rank is gone.
  void follow() { static_cast<ProcessesExecutor&>(*executor_).follow(); }

  // Returns the first row that differs. Throws Error if the step does not fit the model or the header.
  std::optional<ReplayDifference> run(const RecordedStep& step);

  uint64_t rows() const { return rows_; }      // computed so far
  uint64_t logits() const { return logits_; }  // compared so far

 private:
  Replay(const RecordingHeader& header, const Model& model);
  void check(const RecordedStep& step) const;
  void check(SequenceId sequence, const Span& span) const;

  const RecordingHeader header_;
  const ModelConfig& config_;
  const CacheLayout layout_;
  std::unique_ptr<RankGroup> ranks_;  // nullptr: one
  std::unique_ptr<Executor> executor_;
  int drafted_ = 0;  // rows of the last step
  uint64_t rows_ = 0, logits_ = 0;
};

}  // namespace quire
