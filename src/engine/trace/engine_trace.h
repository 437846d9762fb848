// The engine's trace: the phases and operations of its steps, and what happens to its answers (docs/tracing.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/loaded_model.h"
#include "engine/request_state.h"
#include "engine/scheduler.h"
#include "engine/step_builder.h"
#include "model/step_profile.h"
#include "trace/trace_writer.h"

namespace quire {

struct Sequence;

// Used by the engine's thread alone; another one writes the file. Nothing here allocates or waits: what finds no room is
// counted in the file's last event. While operations are traced, the clock is read at each of them, and a backend that
// computes asynchronously finishes each before the next begins.
class EngineTrace {
 public:
  // nullptr if the model's options ask for none. The model must outlive it. Throws Error: the file cannot be written.
  static std::unique_ptr<EngineTrace> open(LoadedModel& model);
  ~EngineTrace();
  EngineTrace(const EngineTrace&) = delete;
  EngineTrace& operator=(const EngineTrace&) = delete;

  // A step: begin_step(), ended() for each phase in turn, end_step(). A step that failed is forgotten by the next
  // begin_step().
  void begin_step();
  void ended(StepPhase phase);
  // chunks and sampling are those of the step; running and waiting: sequences after it.
  void end_step(uint64_t number, std::span<const Chunk> chunks, std::span<const Sampling> sampling, size_t running,
                size_t waiting);
  // No step: until now, the engine has waited for the page store.
  void waited();

  // Answers. Those that a step computes are reported before its end.
  void begun(const Sequence& s);  // the request's first rows are about to be computed
  void first_token(const Sequence& s);
  void preempted(const Sequence& s);
  void finished(const Sequence& s, FinishReason reason);  // before the sequence gives up its request

  // What it allocates, within the memory plan.
  static constexpr size_t kMemoryBytes = size_t{12} << 20;

 private:
  EngineTrace(LoadedModel& model, const TraceFileOptions& file, const TraceHeader& header, size_t most_operations);

  int64_t since_start(Clock::time_point time) const;
  void add(TracedAnswer answer, const Sequence& s);
  void stop_if_ended();

  LoadedModel& model_;
  const Clock::time_point start_ = Clock::now();
  StepProfile profile_;
  std::vector<StepProfile::Span> operations_;  // of the step; its capacity never changes
  bool profiles_ = false;                      // the decoder fills profile_
  Clock::time_point mark_{};                   // the end of the last phase
  TraceWriter writer_;
};

}  // namespace quire
