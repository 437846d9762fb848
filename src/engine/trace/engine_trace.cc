#include "engine/trace/engine_trace.h"

#include <algorithm>
#include <chrono>

#include "engine/sequence.h"

namespace quire {
namespace {

// A dense layer marks about ten operations, one of MLA with shared and routed experts about twenty.
constexpr size_t kOperationsPerLayer = 32, kOperationsOutside = 32;
constexpr size_t kMostAnswers = 1024;  // events of a step
constexpr size_t kBufferBytes = size_t{8} << 20;
static_assert(kBufferBytes < EngineTrace::kMemoryBytes);

int64_t microseconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::unique_ptr<EngineTrace> EngineTrace::open(LoadedModel& model) {
  const EngineOptions& o = model.options;
  if (o.trace_out.empty()) return nullptr;
  // With an executor process, the operations are in the other process.
  const bool operations = o.trace_detail == TraceDetail::kOperations && model.decoder();
  const size_t most_operations =
      operations ? model.target.config.layers.size() * kOperationsPerLayer + kOperationsOutside : 0;
  // Each running sequence may have a chunk, a first token and an end in one step.
  const size_t most_answers = std::min(kMostAnswers, 3 * static_cast<size_t>(o.max_num_seqs) + 16);
  const TraceFileOptions file{.path = o.trace_out,
                              .most_bytes = std::max(o.trace_bytes, kLeastTraceBytes),
                              .buffer_bytes = kBufferBytes,
                              .most_operations = most_operations,
                              .most_answers = most_answers};
  const TraceHeader header{.model = model.info.name,
                           .kernels = model.info.kernels,
                           .activations = model.info.activations,
                           .threads = model.info.threads,
                           .started = microseconds_since_1970(),
                           .operations = operations};
  return std::unique_ptr<EngineTrace>(new EngineTrace(model, file, header, most_operations));
}

EngineTrace::EngineTrace(LoadedModel& model, const TraceFileOptions& file, const TraceHeader& header,
                         size_t most_operations)
    : model_(model), profiles_(header.operations), writer_(file, header, kStepOpNames) {
  if (!profiles_) return;
  operations_.reserve(most_operations);
  profile_.keep_spans(&operations_);
  model_.decoder()->profile(&profile_);
}

EngineTrace::~EngineTrace() {
  if (profiles_) model_.decoder()->profile(nullptr);
}

int64_t EngineTrace::since_start(Clock::time_point time) const {
  return std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(time - start_).count());
}

void EngineTrace::begin_step() {
  writer_.current().clear_step();
  operations_.clear();
  mark_ = Clock::now();
  writer_.current().span.began = since_start(mark_);
}

void EngineTrace::ended(StepPhase phase) {
  const auto now = Clock::now();
  writer_.current().phases[static_cast<size_t>(phase)] = {since_start(mark_), since_start(now)};
  mark_ = now;
}

void EngineTrace::end_step(uint64_t number, std::span<const Chunk> chunks, std::span<const Sampling> sampling,
                           size_t running, size_t waiting) {
  StepTrace& step = writer_.current();
  step.number = number;
  step.span.ended = since_start(mark_);
  step.sequences = static_cast<int>(chunks.size());
  step.running = static_cast<int>(running);
  step.waiting = static_cast<int>(waiting);
  for (const Sampling& s : sampling) step.tokens += s.tokens;
  for (const Chunk& chunk : chunks) {
    (chunk.decodes ? step.decode_rows : step.prompt_rows) += chunk.rows;
    step.drafts += chunk.drafts;
    if (chunk.decodes) continue;
    step.add(TracedAnswer{.kind = TracedAnswer::Kind::kPrefill,
                          .span = step.span,
                          .sequence = static_cast<uint64_t>(chunk.id),
                          .step = number,
                          .first = chunk.first,
                          .rows = chunk.rows});
  }
  for (const StepProfile::Span& span : operations_) {
    step.add(TracedOperation{.span = {since_start(span.began), since_start(span.ended)},
                             .operation = static_cast<uint8_t>(span.op),
                             .layer = span.layer});
  }
  step.lost_operations += profile_.take_lost_spans();
  writer_.hand_over();
  stop_if_ended();
}

void EngineTrace::waited() {
  StepTrace& step = writer_.current();
  const int64_t began = step.span.began;
  step.clear_step();
  step.waited = {began, since_start(Clock::now())};
  writer_.hand_over();
}

// Once nothing more is written, operations need not be timed.
void EngineTrace::stop_if_ended() {
  if (!profiles_ || !writer_.ended()) return;
  model_.decoder()->profile(nullptr);
  profiles_ = false;
  operations_.clear();
}

void EngineTrace::add(TracedAnswer answer, const Sequence& s) {
  if (writer_.ended()) return;
  const RequestState& r = *s.request;
  answer.sequence = static_cast<uint64_t>(s.id);
  answer.request = static_cast<uint64_t>(r.id);
  answer.choice = s.choice;
  answer.prompt_tokens = r.prompt_tokens;
  answer.cached_tokens = r.begun ? r.cached_tokens : 0;
  writer_.current().add(answer, r.trace_label);
}

void EngineTrace::begun(const Sequence& s) {
  add({.kind = TracedAnswer::Kind::kQueued,
       .span = {since_start(s.request->submitted), since_start(s.request->started)}},
      s);
}

void EngineTrace::first_token(const Sequence& s) {
  const int64_t now = since_start(s.first_token);
  add({.kind = TracedAnswer::Kind::kFirstToken, .span = {now, now}}, s);
}

void EngineTrace::preempted(const Sequence& s) {
  const int64_t now = since_start(Clock::now());
  add({.kind = TracedAnswer::Kind::kPreempted, .span = {now, now}}, s);
}

void EngineTrace::finished(const Sequence& s, FinishReason reason) {
  const RequestState& r = *s.request;
  TracedAnswer answer{.kind = TracedAnswer::Kind::kFinished,
                      .span = {since_start(r.submitted), since_start(Clock::now())},
                      .tokens = s.generated(),
                      .drafted = s.drafted,
                      .accepted = s.accepted};
  if (r.begun) answer.started = since_start(r.started);
  if (s.generated() > 0) answer.first_token = since_start(s.first_token);
  answer.reason = name(reason);
  add(answer, s);
}

}  // namespace quire
