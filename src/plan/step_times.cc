#include "plan/step_times.h"

#include <algorithm>
#include <cassert>

namespace quire {
namespace {

double at_rows(const StepTimes& times, double StepTimes::Knot::*part, int rows) {
  assert(!times.knots.empty());
  if (rows == 0) return 0;
  const auto& knots = times.knots;
  const auto next = std::ranges::lower_bound(knots, rows, {}, &StepTimes::Knot::rows);
  if (next == knots.begin()) return (*next).*part;
  const StepTimes::Knot& before = *(next - 1);
  if (next == knots.end()) return before.*part * rows / before.rows;
  return before.*part + (*next.*part - before.*part) * (rows - before.rows) / (next->rows - before.rows);
}

}  // namespace

double step_seconds(const StepTimes& times, const StepLoad& load) {
  double seconds =
      at_rows(times, &StepTimes::Knot::body, load.rows()) + at_rows(times, &StepTimes::Knot::head, load.logits);
  int decoding = 0;
  for (const SpanLoad& span : load.spans) decoding += span.rows == 1 ? span.sequences : 0;
  for (const SpanLoad& span : load.spans) {
    const auto attention = [&](int position) {
      const SpanLoad at{span.sequences, span.rows, position};
      return step_work(times.work, {.spans = {at}, .logits = 0})[static_cast<size_t>(StepOp::kAttention)];
    };
    const Work here = attention(span.position), first = attention(0);
    if (span.rows > 1)
      seconds += times.prefill * (here.total_multiply_adds() - first.total_multiply_adds());
    else
      seconds +=
          (decoding == 1 && load.spans.size() == 1 ? times.decode_one : times.decode_many) * (here.bytes - first.bytes);
  }
  return seconds;
}

}  // namespace quire
