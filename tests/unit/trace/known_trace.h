// A trace whose numbers are known: three steps of two answers.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "trace/event_text.h"
#include "trace/step_trace.h"

namespace quire::testing {

inline constexpr std::array<std::string_view, 2> kKnownOperations = {"attention", "down"};

inline TraceHeader known_header() {
  return {.model = "tiny",
          .kernels = "avx2",
          .activations = "int8x2",
          .threads = 2,
          .started = 1'700'000'000'000'000,
          .operations = true};
}

inline constexpr int64_t kMs = 1'000'000;  // nanoseconds

inline StepTrace step_at(uint64_t number, int64_t began_ms, int64_t ended_ms) {
  StepTrace step;
  step.reserve(16, 16);
  step.number = number;
  step.span = {began_ms * kMs, ended_ms * kMs};
  const int64_t middle = (began_ms + ended_ms) / 2 * kMs;
  step.phases[static_cast<size_t>(StepPhase::kSchedule)] = {began_ms * kMs, began_ms * kMs + kMs};
  step.phases[static_cast<size_t>(StepPhase::kForward)] = {began_ms * kMs + kMs, ended_ms * kMs};
  step.add(TracedOperation{.span = {began_ms * kMs + kMs, middle}, .operation = 0, .layer = 0});
  step.add(TracedOperation{.span = {middle, ended_ms * kMs}, .operation = 1, .layer = 0});
  return step;
}

// Step 1, 10 to 20 ms: prefill of 8 rows. Step 2, 22 to 32 ms, mixed: 1 row, 4 prompt rows. Idle, after a wait of 3 ms for
// the page store, until step 3, 52 to 72 ms: 2 rows and 3 drafts. Answer 1 was submitted at 4 ms and has 3 tokens until 72
// ms; answer 2 was submitted at 12 ms and has not ended; answer 3 was cancelled in the queue.
inline std::vector<StepTrace> known_steps() {
  using Kind = TracedAnswer::Kind;
  std::vector<StepTrace> steps;
  steps.reserve(3);  // a copy of a step would have no room for more
  steps.push_back(step_at(1, 10, 20));
  steps.push_back(step_at(2, 22, 32));
  steps.push_back(step_at(3, 52, 72));
  StepTrace &first = steps[0], &second = steps[1], &third = steps[2];
  first.sequences = 1;
  first.prompt_rows = 8;
  first.tokens = 1;
  first.running = 1;
  first.waiting = 1;
  first.add(TracedAnswer{.kind = Kind::kQueued,
                         .span = {4 * kMs, 10 * kMs},
                         .sequence = 1,
                         .request = 1,
                         .prompt_tokens = 10,
                         .cached_tokens = 2},
            "request-a");
  first.add(TracedAnswer{.kind = Kind::kPrefill, .span = first.span, .sequence = 1, .step = 1, .first = 2, .rows = 8});
  first.add(TracedAnswer{.kind = Kind::kFirstToken, .span = {20 * kMs, 20 * kMs}, .sequence = 1, .request = 1});
  second.sequences = 2;
  second.prompt_rows = 4;
  second.decode_rows = 1;
  second.tokens = 1;
  second.add(TracedAnswer{
      .kind = Kind::kQueued, .span = {12 * kMs, 22 * kMs}, .sequence = 2, .request = 2, .prompt_tokens = 40});
  second.add(TracedAnswer{.kind = Kind::kPrefill, .span = second.span, .sequence = 2, .step = 2, .rows = 4});
  second.add(TracedAnswer{.kind = Kind::kPreempted, .span = {32 * kMs, 32 * kMs}, .sequence = 2, .request = 2});
  third.waited = {40 * kMs, 43 * kMs};
  third.sequences = 2;
  third.decode_rows = 2;
  third.drafts = 3;
  third.tokens = 1;
  third.running = 1;
  third.add(TracedAnswer{.kind = Kind::kFinished,
                         .span = {4 * kMs, 72 * kMs},
                         .sequence = 1,
                         .request = 1,
                         .prompt_tokens = 10,
                         .cached_tokens = 2,
                         .tokens = 3,
                         .drafted = 3,
                         .accepted = 1,
                         .started = 10 * kMs,
                         .first_token = 20 * kMs,
                         .reason = "stop"});
  third.add(TracedAnswer{.kind = Kind::kFinished,
                         .span = {60 * kMs, 70 * kMs},
                         .sequence = 3,
                         .request = 3,
                         .prompt_tokens = 5,
                         .reason = "cancelled"});
  return steps;
}

inline std::string known_trace(bool with_end = true) {
  std::string text;
  append_trace_header(known_header(), text);
  for (const StepTrace& step : known_steps()) append_step_events(step, kKnownOperations, text);
  if (with_end) append_trace_end(TraceEnd::kClosed, 3, {}, text);
  return text;
}

}  // namespace quire::testing
