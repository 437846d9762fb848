#include "trace/event_text.h"

#include <array>
#include <charconv>
#include <concepts>

#include "base/text/utf8.h"
#include "json/quote.h"

namespace quire {
namespace {

// A trace has hundreds of events for each step, so they are put together by hand: fmt takes several times the instructions.

void put(std::string& out, std::string_view text) { out += text; }
template <std::integral Integer>
void put(std::string& out, Integer number) {
  std::array<char, 24> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  out.append(digits.data(), end);
}

// Appends texts and numbers, one after the other.
template <class... Parts>
void append(std::string& out, const Parts&... parts) {
  (put(out, parts), ...);
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(lossy_utf8(text), out);
  return out;
}

// Chrome's unit is the microsecond; three decimals.
void append_time(std::string& out, std::string_view key, int64_t nanoseconds) {
  const int64_t rest = nanoseconds % 1000;
  append(out, ",\"", key, "\":", nanoseconds / 1000, rest < 10 ? ".00" : rest < 100 ? ".0" : ".", rest);
}

// The beginning of an event, up to its arguments.
void begin_span(std::string& out, std::string_view name, std::string_view category, int process, uint64_t track,
                const TracedSpan& span) {
  append(out, ",\n{\"name\":\"", name, "\",\"cat\":\"", category, "\",\"ph\":\"X\",\"pid\":", process,
         ",\"tid\":", track);
  append_time(out, "ts", span.began);
  append_time(out, "dur", span.ended - span.began);
}

void begin_instant(std::string& out, std::string_view name, uint64_t track, int64_t time) {
  append(out, ",\n{\"name\":\"", name, "\",\"cat\":\"", kAnswerCategory,
         "\",\"ph\":\"i\",\"s\":\"t\",\"pid\":", kAnswersProcess, ",\"tid\":", track);
  append_time(out, "ts", time);
}

void append_name(std::string& out, std::string_view kind, int process, uint64_t track, std::string_view name) {
  append(out, ",\n{\"name\":\"", kind, "\",\"ph\":\"M\",\"pid\":", process, ",\"tid\":", track,
         ",\"args\":{\"name\":", json_string(name), "}}");
}

void append_track_name(std::string& out, const TracedAnswer& answer, std::string_view label) {
  std::string name;
  append(name, "request ", answer.request);
  if (answer.choice > 0) append(name, ", choice ", answer.choice);
  if (!label.empty()) append(name, " (", label, ")");
  append_name(out, "thread_name", kAnswersProcess, answer.sequence, name);
}

void append_queued(std::string& out, const TracedAnswer& answer, std::string_view label, const TracedSpan& span) {
  append_track_name(out, answer, label);
  begin_span(out, kQueuedName, kAnswerCategory, kAnswersProcess, answer.sequence, span);
  append(out, ",\"args\":{\"request\":", answer.request, ",\"prompt_tokens\":", answer.prompt_tokens,
         ",\"cached_tokens\":", answer.cached_tokens, "}}");
}

void append_finished(std::string& out, const TracedAnswer& answer, std::string_view label) {
  const auto [submitted, ended] = answer.span;
  if (answer.started < 0) append_queued(out, answer, label, answer.span);  // it never ran
  if (answer.first_token >= 0) {
    begin_span(out, kDecodeName, kAnswerCategory, kAnswersProcess, answer.sequence, {answer.first_token, ended});
    append(out, ",\"args\":{\"tokens\":", answer.tokens, ",\"drafted\":", answer.drafted,
           ",\"accepted\":", answer.accepted, "}}");
  }
  begin_instant(out, kFinishedName, answer.sequence, ended);
  append(out, ",\"args\":{\"request\":", answer.request, ",\"choice\":", answer.choice, ",\"reason\":\"", answer.reason,
         "\",\"prompt_tokens\":", answer.prompt_tokens, ",\"cached_tokens\":", answer.cached_tokens,
         ",\"tokens\":", answer.tokens, ",\"drafted\":", answer.drafted, ",\"accepted\":", answer.accepted);
  const int64_t started = answer.started < 0 ? ended : answer.started;
  append_time(out, "queue_us", started - submitted);
  if (answer.first_token >= 0) append_time(out, "ttft_us", answer.first_token - submitted);
  append_time(out, "total_us", ended - submitted);
  out += "}}";
}

void append_answer(std::string& out, const TracedAnswer& answer, std::string_view label) {
  using Kind = TracedAnswer::Kind;
  switch (answer.kind) {
    case Kind::kQueued:
      return append_queued(out, answer, label, answer.span);
    case Kind::kPrefill:
      begin_span(out, kPrefillName, kAnswerCategory, kAnswersProcess, answer.sequence, answer.span);
      return append(out, ",\"args\":{\"first\":", answer.first, ",\"rows\":", answer.rows, ",\"step\":", answer.step,
                    "}}");
    case Kind::kFirstToken:
      if (answer.choice > 0) append_track_name(out, answer, label);  // it forked from another's prompt
      begin_instant(out, kFirstTokenName, answer.sequence, answer.span.ended);
      out += '}';
      return;
    case Kind::kPreempted:
      begin_instant(out, kPreemptedName, answer.sequence, answer.span.ended);
      out += '}';
      return;
    case Kind::kFinished:
      return append_finished(out, answer, label);
  }
}

void append_step(std::string& out, const StepTrace& step) {
  begin_span(out, "step", kStepCategory, kEngineProcess, kEngineTrack, step.span);
  append(out, ",\"args\":{\"step\":", step.number, ",\"kind\":\"", step_kind(step.prompt_rows, step.decode_rows),
         "\",\"sequences\":", step.sequences, ",\"rows\":", step.prompt_rows + step.decode_rows + step.drafts,
         ",\"prompt_rows\":", step.prompt_rows, ",\"decode_rows\":", step.decode_rows, ",\"drafts\":", step.drafts,
         ",\"tokens\":", step.tokens, ",\"running\":", step.running, ",\"waiting\":", step.waiting, "}}");
}

}  // namespace

std::string_view step_kind(int prompt_rows, int decode_rows) {
  return prompt_rows == 0 ? "decode" : decode_rows == 0 ? "prefill" : "mixed";
}

void append_trace_header(const TraceHeader& header, std::string& out) {
  append(out, "[\n{\"name\":\"", kTraceHeaderName, "\",\"ph\":\"M\",\"pid\":", kEngineProcess,
         ",\"tid\":", kEngineTrack, ",\"args\":{\"version\":", kTraceVersion, ",\"model\":", json_string(header.model),
         ",\"kernels\":", json_string(header.kernels), ",\"activations\":", json_string(header.activations),
         ",\"threads\":", header.threads, ",\"started_us\":", header.started,
         ",\"operations\":", header.operations ? "true" : "false", "}}");
  append_name(out, "process_name", kEngineProcess, kEngineTrack, "engine: " + header.model);
  append_name(out, "thread_name", kEngineProcess, kEngineTrack, "steps");
  append_name(out, "process_name", kAnswersProcess, 0, "requests");
}

void append_step_events(const StepTrace& step, std::span<const std::string_view> operations, std::string& out) {
  if (step.waited.ended > step.waited.began) {
    begin_span(out, "page store", kWaitCategory, kEngineProcess, kEngineTrack, step.waited);
    out += '}';
  }
  if (step.number > 0) {
    append_step(out, step);
    for (size_t i = 0; i < step.phases.size(); ++i) {
      if (step.phases[i].ended == step.phases[i].began) continue;
      begin_span(out, kStepPhaseNames[i], kPhaseCategory, kEngineProcess, kEngineTrack, step.phases[i]);
      out += '}';
    }
    for (const TracedOperation& operation : step.operations) {
      begin_span(out, operations[operation.operation], kOperationCategory, kEngineProcess, kEngineTrack,
                 operation.span);
      if (operation.layer >= 0) append(out, ",\"args\":{\"layer\":", operation.layer, "}");
      out += '}';
    }
  }
  for (const TracedAnswer& answer : step.answers) append_answer(out, answer, step.label(answer));
}

void append_trace_end(TraceEnd end, uint64_t steps, const TraceLosses& losses, std::string& out) {
  append(out, ",\n{\"name\":\"", kTraceEndName, "\",\"ph\":\"M\",\"pid\":", kEngineProcess, ",\"tid\":", kEngineTrack,
         ",\"args\":{\"end\":\"", kTraceEndNames[static_cast<size_t>(end)], "\",\"steps\":", steps,
         ",\"lost_steps\":", losses.steps, ",\"lost_operations\":", losses.operations,
         ",\"lost_answers\":", losses.answers, "}}\n]\n");
}

}  // namespace quire
