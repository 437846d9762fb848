// The steps of the engine: schedule, run the model, sample.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/cache/page_cache.h"
#include "engine/cache/page_loader.h"
#include "engine/chosen.h"
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

namespace quire {

// Used by one thread, which also runs the requests' callbacks.
class EngineLoop {
 public:
  explicit EngineLoop(LoadedModel& model);

  // New requests, each with its first sequence.
  void add(Sequences&& arrived) { roster_.add(std::move(arrived)); }
  void cancel(std::vector<RequestId>& ids) { roster_.cancel(ids); }
  bool idle() const { return roster_.idle(); }
  // Ends cancelled and late requests, then computes one step of the others. Without memory for one sequence, that
  // sequence ends with an error; without memory for the step itself, all do.
  void step();
  void end_all(FinishReason reason) { roster_.end_all(reason); }
  // Reuses the memory of `stats`, so only the first call allocates.
  void write_stats(EngineStats& stats) const;

 private:
  // What the engine alone knows of a SampleRequest.
  struct Sampling {
    Sequence* sequence = nullptr;  // nullptr: dropped
    int position = 0;              // of the first row's token
    int first_draft = 0;           // among all drafts of the step
    bool decodes = false;          // the sequence was decoding before the step
    int tokens = 0;                // that it got
  };

  void try_step();
  // Schedule.
  void observe();
  void observe_waiting();
  void wait_for_checkpoints();
  void apply_plan();
  Sequences::iterator observed(SequenceId id) const;
  // Run.
  void begin_computing(Sequence& s);
  void make_step();
  void add_rows(Sequence& s, const Chunk& chunk);
  void compute();
  void add_sample(Sequence& s, const Chunk& chunk, int position);
  static void set_answer(SampleRequest& request, const Sequence& s);
  void fork(const SampleRequest& request, Sampling sampling);
  // Take the results.
  void end_pooled();
  void take_features();
  void take_samples();
  bool begin_fork(Sequence& fork);
  void take_tokens(Sampling& sampling, const SampleRequest& request, SampleResult&& result);
  void record();
  void take_drafts(const Sampling& sampling, int drafts, const Chosen& chosen);
  void advance_states();
  void deliver(Sequence& s, Chosen& chosen);
  void count_prompt(const Sequence& s);
  void count_step(double seconds);

  const EngineOptions& options_;
  LoadedModel& model_;
  const Tokenizer* tokenizer_;
  const SchedulerLimits limits_;
  std::unique_ptr<RecordingExecutor> recorder_;  // nullptr: steps are not recorded
  Orders orders_;
  PageCache cache_;
  PageLoader loader_;
  TenantShares shares_;
  Roster roster_;
  DraftStage draft_stage_;
  DraftOrders draft_orders_;
  LogitsStage logits_stage_;
  StepCostModel costs_;
  int since_oldest_ = 0;  // admissions since the longest waiting sequence had its turn
  EngineStats stats_;

  // Reused from step to step, to avoid allocations.
  SchedulerState state_;
  StepPlan plan_;
  std::vector<std::pair<SequenceId, Sequences::iterator>> observed_;  // the sequences in state_, sorted by id
  std::vector<Sequence*> planned_;                                    // the sequences of plan_.chunks
  std::vector<Waiting> queue_;
  std::vector<Sequences::iterator> queued_;  // the sequences of queue_
  std::vector<double> served_;
  std::vector<size_t> order_;
  ForwardInput input_;
  std::vector<SampleRequest> samples_;
  std::vector<Sampling> sampling_;  // of samples_
  std::vector<SampleResult> results_;
  std::vector<size_t> pools_;  // the chunks of input_.forward.pooled
  uint64_t expert_bytes_ = 0;  // that the step has read
  size_t logits_ = 0;          // rows of input_ that want them
  int drafts_ = 0;             // of input_
  struct Advancing {           // a sequence whose state lacks right drafts
    Sequence* sequence;
    int first_draft, drafts;
  };
  std::vector<Advancing> advancing_;
  Sequences forks_;  // choices whose first token the step samples; they are not in the roster yet
};

}  // namespace quire
