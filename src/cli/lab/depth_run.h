// Times decode steps of one sequence at growing depths.
#pragma once

#include <memory>

#include "engine/loaded_model.h"
#include "engine/single_sequence.h"

namespace quire {

// Seconds, and the part of them in attention.
struct DepthTime {
  double total = 0, attention = 0;
};

class DepthRun {
 public:
  // Loads the model for one sequence of at most `longest` tokens. Throws Error as LoadedModel does.
  DepthRun(EngineOptions options, int longest, std::shared_ptr<Runtime> runtime);

  const LoadedModel& model() const { return model_; }
  // Computes tokens, fixed pseudo-random ones by position, until the sequence has `depth`; what that took. Fewer than it has:
  // begins anew.
  DepthTime reach(int depth);
  // Decodes `steps` tokens, at least 1, and gives the time of the median step.
  DepthTime decode(int steps);

 private:
  DepthTime append(int count);

  LoadedModel model_;
  SingleSequence sequence_;
  TokenIds ids_;
};

}  // namespace quire
