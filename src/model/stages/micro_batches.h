// How the rows of a step are cut, so that several stages work on different ones at the same time.
#pragma once

#include <vector>

#include "model/batch.h"

namespace quire {

struct MicroBatchLimits {
  int most = 1;              // micro-batches of a step
  int least_rows = 1;        // of a micro-batch, if the step has so many
  bool whole_spans = false;  // rows of a sequence see later ones, so they stay together
};

// Consecutive rows of a batch.
struct MicroBatch {
  int row = 0, rows = 0;
  int drafted = 0;                             // drafted rows of the batch before these
  std::vector<Span> spans;                     // of these rows: Span::row counts from `row`
  std::vector<std::vector<StateCopy>> copies;  // what the spans name
};

// Cuts the rows in order into micro-batches of nearly equal size. A sequence's rows may be cut like the chunks of a prompt;
// those of a span with drafts stay together. What a batch names must outlive the result.
std::vector<MicroBatch> micro_batches(const Batch& batch, const MicroBatchLimits& limits);

}  // namespace quire
