// The last steps of an engine, in memory that does not grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "engine/step_builder.h"
#include "engine/watch/snapshot.h"

namespace quire {

// Used by the engine's thread alone. Allocates in the constructor only; adding a step takes a few nanoseconds a sequence.
class StepHistory {
 public:
  StepHistory();

  // What the sequences do in the step, with the tokens that they got. Sampling::sequence must still be valid.
  void add_parts(std::span<const Chunk> chunks, std::span<const Sampling> sampling);
  // The step to which these parts belong is done. Sets its number, its rows and where its parts are.
  void end_step(StepSnapshot step);

  // Sets steps and parts of `to`, reusing its memory.
  void copy_to(EngineSnapshot& to) const;

 private:
  void add(const StepPart& part) { parts_[added_++ % parts_.size()] = part; }
  StepPart& part(uint64_t index) { return parts_[index % parts_.size()]; }

  // Rings: step n, and the n-th part ever added, are at n modulo the size.
  std::vector<StepSnapshot> steps_;
  std::vector<uint64_t> first_parts_;  // of each of these steps
  std::vector<StepPart> parts_;
  uint64_t last_ = 0;               // number of the last step
  uint64_t added_ = 0, begun_ = 0;  // parts ever added; how many of them before those of the step in progress
};

}  // namespace quire
