// Runs a model over a text while a collector sees the inputs of its linears.
#pragma once

#include <cstddef>
#include <functional>

#include "cli/text/text_chunks.h"
#include "quantize/input_collector.h"

namespace quire {

// Each chunk is a prompt of its own. with_output: the output matrix sees all rows, not some of them, which takes longer.
// progress: in chunks; it may throw to stop. The model computes in this process and has kScoredRows as max_logits.
void calibrate(LoadedModel& model, const TextChunks& text, InputCollector& inputs, bool with_output,
               const std::function<void(size_t computed, size_t total)>& progress);

}  // namespace quire
