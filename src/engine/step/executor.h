// Runs steps: the forward pass, then sampling.
#pragma once

#include <memory>

#include "engine/step/logits_stage.h"
#include "engine/step/recording.h"
#include "engine/step/step.h"
#include "model/decoder.h"

namespace quire {

// Computes on the calling thread and its team. It does not overlap with planning: with two threads, SmolLM2 and 1 or 32
// sequences, planning is 0.1 to 0.3 % of a step's time, and sampling uses all threads.
class Executor {
 public:
  // Both must outlive the executor. recorder: nullptr, or where steps are recorded.
  Executor(Decoder& decoder, LogitsStage logits_stage, std::unique_ptr<StepRecorder> recorder);

  // Throws std::bad_alloc; failures of single sequences are among the results.
  void run(const StepInput& input, StepOutput& output);
  // After a step: states take in those of its drafts that were right.
  void advance(std::span<const StateAdvance> advances) { decoder_.advance(advances); }

 private:
  Decoder& decoder_;
  LogitsStage logits_stage_;
  std::unique_ptr<StepRecorder> recorder_;
};

}  // namespace quire
