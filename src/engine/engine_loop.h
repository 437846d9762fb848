// What the engine's thread does: sequences in, steps, tokens out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/fair_queue.h"
#include "engine/loaded_model.h"
#include "engine/page_cache.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace quire {

// Single-threaded; the callbacks of requests are called from inside.
class EngineLoop {
 public:
  EngineLoop(const EngineOptions& options, LoadedModel& model);

  // A request for which there is no memory ends with an error.
  void add(const std::shared_ptr<RequestState>& request, const TokenIds& prompt);
  void cancel(RequestId id);
  bool idle() const { return running_.empty() && waiting_.empty(); }
  // Ends what was cancelled or came too late, then computes a step of the rest. Where there is no memory for a token's
  // output, that answer ends with an error; where there is none for the step itself, all do.
  void step();
  // Every request that is there ends.
  void end_all(FinishReason reason, const std::string& error = {});
  EngineStats stats() const;

 private:
  using Sequences = std::vector<std::unique_ptr<Sequence>>;

  // A row of logits and whom it is for.
  struct LogitRow {
    Sequence* sequence;
    int position;  // of the row's token
    bool samples;  // the next token; otherwise it tells the logprob of the prompt's next token
  };

  Sequence* find(SequenceId id) const;
  SequenceView view(const Sequence& s, bool counts_own_pages) const;
  void make_place();
  void end(Sequence& s, FinishReason reason, const std::string& error = {});
  void leave(Sequence& s);
  void choice_ended(RequestState& r);
  void remove_ended();
  void try_step();
  void end_unwanted();
  void wait_again(std::unique_ptr<Sequence> s);
  void observe();
  void apply_plan();
  void begin_computing(Sequence& s);
  std::span<float> execute();
  void pool_hidden_states();
  void take_logits(std::span<float> logits);
  void fork(Sequence& first, std::span<const float> logits);
  void add_choice(const Sequence& first, int choice, std::span<const float> logits);
  void take_token(Sequence& s, const std::optional<Sampled>& token, const std::string& error);
  void count_step(double seconds);

  const EngineOptions options_;
  LoadedModel& model_;
  const Tokenizer* tokenizer_;
  SchedulerLimits limits_;
  PageCache cache_;
  TenantShares shares_;
  StepCostModel costs_;
  // Waiting: by arrival. Both have place for what may move there: no move between them fails.
  Sequences running_, waiting_;
  SequenceId next_sequence_ = 1;
  int since_oldest_ = 0;  // admissions since the oldest waiting one had its turn
  EngineStats stats_;

  // Kept from step to step, so that a step does not allocate.
  SchedulerState state_;
  StepPlan plan_;
  std::vector<Sequence*> planned_;  // whose plan_.chunks are
  std::vector<Waiting> queue_;
  std::vector<double> served_;
  std::vector<size_t> order_;
  std::vector<Row> rows_;
  std::vector<Span> spans_;
  std::vector<LogitRow> logit_rows_;
  std::vector<std::optional<Sampled>> sampled_;
  std::vector<std::string> errors_;
  std::vector<SamplerScratch> scratch_;  // one a thread
  std::vector<float> choice_logits_;     // a copy for each further choice of n > 1
  std::vector<float> hidden_;            // one row
};

}  // namespace quire
