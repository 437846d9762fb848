// Traces as Chrome's JSON: an array with one event on each line, which https://ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trace/step_trace.h"
#include "trace/trace_format.h"

namespace quire {

// What a trace lacks because there was no room for it when it happened.
struct TraceLosses {
  uint64_t steps = 0, operations = 0, answers = 0;  // answers: events of answers

  bool operator==(const TraceLosses&) const = default;
};

// "[", the header, and the names of tracks.
void append_trace_header(const TraceHeader& header, std::string& out);

// The events of a step and of its answers; each follows a comma. operations: names of TracedOperation::operation.
void append_step_events(const StepTrace& step, std::span<const std::string_view> operations, std::string& out);

// The last event, and "]". steps: that the file has.
void append_trace_end(TraceEnd end, uint64_t steps, const TraceLosses& losses, std::string& out);

// What a step is: prefill, decode or mixed.
std::string_view step_kind(int prompt_rows, int decode_rows);

}  // namespace quire
