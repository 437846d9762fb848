#include "engine/step/executor.h"

#include <utility>

namespace quire {

Executor::Executor(Decoder& decoder, LogitsStage logits_stage, std::unique_ptr<StepRecorder> recorder)
    : decoder_(decoder), logits_stage_(std::move(logits_stage)), recorder_(std::move(recorder)) {}

void Executor::run(const StepInput& input, StepOutput& output) {
  const auto logits = decoder_.forward({input.rows, input.spans});
  if (recorder_) recorder_->begin(input, logits);  // sampling overwrites the logits
  logits_stage_.sample(input.samples, logits, output.results);
  if (recorder_) recorder_->end(input, output);
}

}  // namespace quire
