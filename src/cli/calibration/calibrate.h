// Runs a model over a text while an observer sees the inputs of its linears.
#pragma once

#include <cstddef>
#include <functional>

#include "cli/text/text_chunks.h"
#include "engine/single_sequence.h"
#include "ops/backend.h"
#include "ops/input_observer.h"

namespace quire {

// How the rows of a text come.
struct CalibrationSteps {
  int rows = 0;             // most of a step
  bool all_logits = false;  // the output matrix sees all rows, not only the last of each step
  // Called before each step with its first row, counted over the whole text.
  std::function<void(size_t row)> begin = {};
};

// Each chunk is a prompt of its own. operations: of what computes the sequence. progress: in chunks; it may throw to stop.
void calibrate(SingleSequence& sequence, Operations& operations, const TextChunks& text, const CalibrationSteps& steps,
               InputObserver& inputs, const std::function<void(size_t computed, size_t total)>& progress);

// with_output: as CalibrationSteps::all_logits, which takes longer. The model computes in this process and has kScoredRows as
// max_logits.
void calibrate(LoadedModel& model, const TextChunks& text, InputObserver& inputs, bool with_output,
               const std::function<void(size_t computed, size_t total)>& progress);

}  // namespace quire
