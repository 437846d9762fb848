// The steps of the engine: schedule, run the model, sample.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/ahead/ahead_step.h"
#include "engine/answer/chosen.h"
#include "engine/answer/outbox.h"
#include "engine/cache/page_cache.h"
#include "engine/cache/page_loader.h"
#include "engine/drafting/draft_orders.h"
#include "engine/drafting/draft_stage.h"
#include "engine/fair_queue.h"
#include "engine/loaded_model.h"
#include "engine/roster.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step/logits_stage.h"
#include "engine/step/orders.h"
#include "engine/step/recording.h"
#include "engine/step_builder.h"
#include "engine/trace/engine_trace.h"
#include "engine/watch/engine_watch.h"
#include "ops/backend_memory.h"

namespace quire {

// Used by one thread, which also runs the requests' callbacks.
class EngineLoop {
 public:
  explicit EngineLoop(LoadedModel& model);

  // New requests, each with its first sequence.
  void add(Sequences&& arrived) { roster_.add(std::move(arrived)); }
  void cancel(std::vector<RequestId>& ids) { roster_.cancel(ids); }
  bool idle() const { return roster_.idle() && !ahead_.launched(); }
  // Ends cancelled and late requests, then computes one step of the others. Without memory for one sequence, that
  // sequence ends with an error; without memory for the step itself, all do. Where passes run apart, clients hear of this step
  // while the next one's pass runs.
  void step();
  // Does what waits for a pass to run, because none will soon.
  void catch_up();
  void end_all(FinishReason reason) {
    roster_.end_all(reason);
    catch_up();
    if (ahead_.launched()) step();
  }
  // While it is idle: finds out whether the processes that compute are still there.
  void beat();
  // Reuses the memory of `stats`, so only the first call allocates.
  void write_stats(EngineStats& stats) const;
  // Those of the page store, as they are now. Thread-safe.
  void write_store_stats(EngineStats& stats) const { cache_.shared().add_store_stats(stats); }
  // Its ask() and latest() may be called from any thread.
  EngineWatch& watch() { return watch_; }
  // Tells those who watch what the step has changed.
  void publish(const EngineStats& stats) {
    watch_.publish(roster_, cache_.shared(), stats);
    if (options_.page_observer) options_.page_observer->step_ended();
  }

 private:
  template <class Work>
  void attempt(const Work& work);
  void try_step();
  void fail(const Error& error);
  void ended(StepPhase phase) {
    if (trace_) trace_->ended(phase);
  }
  // Schedule.
  void observe();
  void observe_waiting();
  void wait_for_checkpoints();
  void apply_plan();
  Sequences::iterator observed(SequenceId id) const;
  // Run.
  void begin_computing(Sequence& s);
  EngineStep& make_step();
  StepResults& compute(EngineStep& step, bool ahead);
  void finish_step(EngineStep& step, Clock::time_point start, bool ahead);
  void step_ahead();
  void work_meanwhile();
  void poll_loader(Clock::time_point until = {});
  // Take the results.
  void take(EngineStep& step, StepResults& results);
  void return_lost(EngineStep& step, std::span<const SampleResult> results);
  void end_pooled(const EngineStep& step);
  void take_features(const EngineStep& step);
  void take_samples(EngineStep& step, std::span<SampleResult> results);
  bool begin_fork(EngineStep& step);
  void take_tokens(Sampling& sampling, const SampleRequest& request, SampleResult&& result);
  void record(const EngineStep& step);
  void take_drafts(const Sampling& sampling, int drafts, const Chosen& chosen);
  void advance_states();
  void deliver(Sequence& s, Chosen& chosen);
  void count_prompt(const Sequence& s);
  void count_step(const EngineStep& step, const StepResults& results, Clock::time_point began, double seconds);

  const EngineOptions& options_;
  LoadedModel& model_;
  const SchedulerLimits limits_;
  std::unique_ptr<EngineTrace> trace_;           // nullptr: no trace
  std::unique_ptr<RecordingExecutor> recorder_;  // nullptr: steps are not recorded
  Orders orders_;
  PageCache cache_;
  PageLoader loader_;
  const std::vector<PinnedMemory> pinned_;  // of stored pages
  TenantShares shares_;
  Outbox outbox_;
  Roster roster_;
  DraftStage draft_stage_;
  DraftOrders draft_orders_;
  StepBuilder builder_;
  LogitsStage logits_stage_;
  AheadStep ahead_;
  const bool picks_logits_;  // the executor brings the numbers of logits that decide, where not all do
  const bool runs_ahead_;    // steps of decoding are launched while the last one runs
  StepCostModel costs_;
  bool lost_ = false;     // EngineOptions::on_lost has been called
  int since_oldest_ = 0;  // admissions since the longest waiting sequence had its turn
  EngineStats stats_;
  EngineWatch watch_;

  // Reused from step to step, to avoid allocations.
  SchedulerState state_;
  StepPlan plan_;
  std::vector<std::pair<SequenceId, Sequences::iterator>> observed_;  // the sequences in state_, sorted by id
  std::vector<Waiting> queue_;
  std::vector<Sequences::iterator> queued_;  // the sequences of queue_
  std::vector<double> served_;
  std::vector<size_t> order_;
  EngineStep step_;
  StepResults results_;
  struct Advancing {  // a sequence whose state lacks right drafts
    Sequence* sequence;
    int first_draft, drafts;
  };
  std::vector<Advancing> advancing_;
};

}  // namespace quire
