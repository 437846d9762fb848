#include "model/stages/micro_batches.h"

#include <algorithm>
#include <cstdint>

namespace quire {
namespace {

// `count` rows of the span, from its row `first` on, are the next of the micro-batch.
void append(const Span& span, int first, int count, MicroBatch& to) {
  Span part = span;
  part.row = to.rows;
  part.rows = count;
  part.position += first;
  if (count < span.rows) {
    std::vector<StateCopy>& copies = to.copies.emplace_back();
    for (const StateCopy& copy : span.state_copies)
      if (first <= copy.row && copy.row < first + count) copies.push_back({copy.row - first, copy.slot});
    part.state_copies = copies;
  }
  to.rows += count;
  to.spans.push_back(part);
}

}  // namespace

std::vector<MicroBatch> micro_batches(const Batch& batch, const MicroBatchLimits& limits) {
  const auto rows = static_cast<int>(batch.rows.size());
  const int count = std::clamp(rows / limits.least_rows, 1, limits.most);
  std::vector<MicroBatch> parts(1);
  int goals = 1;
  const auto goal = [&] {
    return static_cast<int>(int64_t{rows} * goals / count);
  };  // where this micro-batch should end
  for (const Span& span : batch.spans) {
    const bool whole = limits.whole_spans || span.drafts > 0;
    for (int first = 0; first < span.rows;) {
      const int at = span.row + first;
      if (at >= goal()) {
        while (at >= goal()) ++goals;
        const MicroBatch& last = parts.back();
        int drafted = last.drafted;
        for (const Span& part : last.spans) drafted += part.drafts;
        parts.push_back({.row = at, .drafted = drafted, .spans = {}, .copies = {}});
      }
      const int taken = whole ? span.rows : std::min(span.rows - first, goal() - at);
      append(span, first, taken, parts.back());
      first += taken;
    }
  }
  return parts;
}

}  // namespace quire
