#include "engine/engine_loop.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cassert>
#include <exception>
#include <new>

#include "base/error.h"
#include "engine/pool_stage.h"
#include "engine/sequence_view.h"

namespace quire {
namespace {

// Weight of a generated token in a tenant's share, relative to a prompt token: about their ratio of cost in a full
// batch.
constexpr double kGeneratedTokenWeight = 2;

// For clients. A full batch seldom has more for them; then they are told before its step has been taken.
constexpr size_t kMostMessages = 1024;

void count_reads(const ExpertReads& reads, EngineStats& stats) {
  stats.expert_hits += reads.hits;
  stats.expert_reads += reads.reads;
  stats.expert_read_bytes += reads.bytes;
  stats.expert_read_seconds += reads.read_seconds;
  stats.expert_wait_seconds += reads.wait_seconds;
}

SchedulerLimits scheduler_limits(const LoadedModel& model) {
  const EngineOptions& o = model.options;
  SchedulerLimits l;
  l.max_rows = o.max_num_batched_tokens;
  l.max_running = o.max_num_seqs;
  l.max_logits = model.plan.limits.max_logits;
  l.chunked_prefill = o.chunked_prefill && o.kv_cache;
  l.static_batches = o.scheduler == SchedulerKind::kStatic;
  l.tpot_target = o.tpot_target;
  l.ttft_target = o.ttft_target;
  return l;
}

std::unique_ptr<RecordingExecutor> open_recorder(const LoadedModel& model) {
  const EngineOptions& o = model.options;
  if (o.record.empty()) return nullptr;
  const ModelInfo& info = model.info;
  return std::make_unique<RecordingExecutor>(model.executor(), o.record,
                                             RecordingHeader{.model = info.name,
                                                             .identity = model.identity,
                                                             .kernels = info.kernels,
                                                             .activations = info.activations,
                                                             .kv_cache_dtype = info.kv_cache_dtype,
                                                             .units = info.kv_pages,
                                                             .states = info.kv_states,
                                                             .limits = model.plan.limits});
}

// The memory that pages are copied to when they leave the cache, and from when they come back.
std::vector<PinnedMemory> pin_pages(Backend& backend, const PageCache& cache, const PageLoader& loader) {
  std::vector<PinnedMemory> pinned;
  const PageStore* const store = cache.shared().store();
  if (!store) return pinned;
  for (const std::span<std::byte> memory : {store->host_memory(), loader.buffers()}) {
    if (memory.empty() || pinned.emplace_back(backend, memory).pinned()) continue;
    spdlog::warn("{} MiB of host memory for pages cannot be pinned; copies between it and the device are slower",
                 memory.size() >> 20);
  }
  return pinned;
}

}  // namespace

EngineLoop::EngineLoop(LoadedModel& model)
    : options_(model.options),
      model_(model),
      limits_(scheduler_limits(model)),
      trace_(EngineTrace::open(model)),
      recorder_(open_recorder(model)),
      orders_(recorder_ ? static_cast<Executor&>(*recorder_) : model.executor()),
      cache_(orders_, model.cache, page_cache_options(model.options, model.cache_identity)),
      loader_(cache_, orders_),
      pinned_(pin_pages(model.runtime.backend(), cache_, loader_)),
      outbox_(kMostMessages,
              [this](SequenceId id) {
                if (Sequence* s = roster_.find(id)) s->given_up = true;
              }),
      roster_(cache_, shares_, outbox_, limits_.max_running, trace_.get()),
      draft_stage_(model.options, model.draft_model.get(), model.text_drafters.get(), model.runtime.team,
                   model.target.config.vocab),
      draft_orders_(orders_),
      builder_(model, cache_, draft_stage_.reads()),
      logits_stage_(model.runtime.team, model.target.config.vocab, model.options.forced_tokens,
                    draft_stage_.wants_predictions()),
      ahead_(roster_, cache_, orders_, builder_),
      picks_logits_(options_.device_sampling && !recorder_ && model.executor().picks_logits()),
      runs_ahead_(options_.run_ahead && picks_logits_ && options_.kv_cache && model.executor().runs_ahead() &&
                  !draft_stage_.on() && !model.host_experts && !cache_.shared().has_states() &&
                  !(trace_ && options_.trace_detail == TraceDetail::kOperations)),
      watch_(model) {
  stats_.kv_pages = model.info.kv_pages;
  state_.needs = cache_.needs();
  orders_.set_meanwhile([this] { work_meanwhile(); });
  if (model.draft_model) model.draft_model->start(draft_orders_, model.cache.layout, model.plan.limits);
}

template <class Work>
void EngineLoop::attempt(const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    roster_.end_all(FinishReason::kError, kOutOfMemory);
    outbox_.tell();
  } catch (const Error& e) {
    fail(e);
  }
}

void EngineLoop::step() {
  attempt([this] { try_step(); });
}

void EngineLoop::catch_up() {
  outbox_.tell();
  attempt([this] { cache_.shared().store_finished(); });
}

void EngineLoop::beat() {
  try {
    if (!lost_) model_.processes->beat();
  } catch (const Error& e) {
    fail(e);
  }
}

// The executor has failed, or is gone.
void EngineLoop::fail(const Error& error) {
  const bool lost = !model_.executor().lost().empty();
  roster_.end_all(lost ? FinishReason::kLost : FinishReason::kError, error.what());
  outbox_.tell();
  if (!lost || lost_) return;
  lost_ = true;
  if (options_.on_lost) options_.on_lost(model_.executor().lost());
}

void EngineLoop::try_step() {
  roster_.end_unwanted();
  if (!orders_.copies_meanwhile()) poll_loader();
  if (ahead_.launched()) return step_ahead();
  if (idle()) return catch_up();
  if (trace_) trace_->begin_step();
  observe();
  make_plan(state_, limits_, costs_.costs(), plan_);
  apply_plan();
  if (plan_.chunks.empty()) {
    catch_up();
    if (orders_.copies_meanwhile()) poll_loader();
    if (plan_.preempted.empty() && plan_.admitted.empty()) {
      loader_.wait();
      if (trace_) trace_->waited();
    }
    return;
  }
  ended(StepPhase::kSchedule);
  const auto start = Clock::now();
  finish_step(make_step(), start, false);
}

// The one whose pass runs already.
void EngineLoop::step_ahead() {
  const auto start = Clock::now();
  if (!ahead_.take(plan_, step_)) {
    orders_.finish_ahead();
    return ahead_.end();
  }
  if (trace_) trace_->begin_step();
  ++stats_.ahead_steps;
  ended(StepPhase::kSchedule);
  finish_step(step_, start, true);
}

// start: when making the step began.
void EngineLoop::finish_step(EngineStep& step, Clock::time_point start, bool ahead) {
  StepResults& results = compute(step, ahead);
  take(step, results);
  count_step(step, results, start, seconds(Clock::now() - start));
  if (trace_) {
    trace_->end_step(stats_.steps, plan_.chunks, step.sampling, roster_.running().size(), roster_.waiting().size());
  }
}

// ---- schedule ----

// Describes the sequences to the scheduler, in state_.
void EngineLoop::observe() {
  Sequences& running = roster_.running();
  for (Sequence& s : running) {
    if (!s.cached.load.active) cache_.advance(s);  // may take idle units
  }
  draft_stage_.choose(running, costs_.costs(), std::min(limits_.max_rows, limits_.max_logits) - limits_.max_running,
                      model_.info.max_model_len);
  observed_.clear();
  state_.free_units = cache_.shared().available_units();
  state_.running.clear();
  // What preempting a sequence would free matters only if units may run out.
  const bool scarce = state_.free_units < (2 * static_cast<int>(running.size()) + 1) * state_.needs.groups;
  for (auto s = running.begin(); s != running.end(); ++s) {
    state_.running.push_back(view_running(*s, cache_, scarce));
    observed_.emplace_back(s->id, s);
  }
  sort_running(state_.running);
  state_.waiting.clear();
  if (!roster_.full()) observe_waiting();
  std::sort(observed_.begin(), observed_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
}

void EngineLoop::observe_waiting() {
  queue_.clear();
  queued_.clear();
  Sequences& waiting = roster_.waiting();
  for (auto s = waiting.begin(); s != waiting.end(); ++s) {
    const RequestState& r = *s->request;
    queue_.push_back(
        {arrival(r), r.priority, r.tenant_number, static_cast<double>(s->tokens.size()), r.tenant_priority});
    queued_.push_back(s);
  }
  shares_.copy_served(served_);
  order_waiting(queue_, served_, since_oldest_, kMostCandidates, order_);
  const auto now = Clock::now();
  for (const size_t i : order_) {
    Sequence& s = *queued_[i];
    cache_.look_up(s, costs_.costs(), loader_.disk_hangs());
    state_.waiting.push_back(view_waiting(s, cache_, now));
    observed_.emplace_back(s.id, queued_[i]);
  }
  if (cache_.shared().has_states()) wait_for_checkpoints();
}

// A prompt that begins like one being computed waits for the checkpoint where they part.
void EngineLoop::wait_for_checkpoints() {
  for (size_t i = 0; i < order_.size(); ++i) {
    SequenceView& view = state_.waiting[i];
    Sequence& s = *queued_[order_[i]];
    for (Sequence& first : roster_.running()) {
      if (first.cached.load.active || first.decodes) continue;
      const uint64_t page = cache_.next_page(first);
      if (page != 0 && cache_.checkpoint_for(first, s)) view.next_page = page;
    }
    for (size_t j = 0; j < i; ++j) {  // one of them may start in this step
      Sequence& first = *queued_[order_[j]];
      if (view.next_page != 0 && state_.waiting[j].next_page == view.next_page) cache_.checkpoint_for(first, s);
    }
  }
}

Sequences::iterator EngineLoop::observed(SequenceId id) const {
  const auto at = std::lower_bound(observed_.begin(), observed_.end(), id,
                                   [](const auto& entry, SequenceId wanted) { return entry.first < wanted; });
  assert(at != observed_.end() && at->first == id && "the plan names a sequence that it was not shown");
  return at->second;
}

void EngineLoop::apply_plan() {
  for (const SequenceId id : plan_.preempted) roster_.preempt(observed(id));
  stats_.preemptions += plan_.preempted.size();
  for (const SequenceId id : plan_.admitted) {
    const auto s = observed(id);
    since_oldest_ = roster_.waiting().begin() == s ? 0 : since_oldest_ + 1;
    roster_.admit(s);
    s->begun = false;
    cache_.adopt(*s);
    if (std::find(plan_.loads.begin(), plan_.loads.end(), id) != plan_.loads.end()) loader_.start(*s);
  }
}

// ---- run ----

// Called for the first chunk and not at admission, because pages may turn out to be missing in the store, and others
// may finish pages meanwhile.
void EngineLoop::begin_computing(Sequence& s) {
  s.begun = true;
  RequestState& r = *s.request;
  shares_.charge(r.tenant_number, static_cast<int>(s.tokens.size()) - s.computed);
  if (r.begun) return;
  r.begun = true;
  r.started = Clock::now();
  r.cached_tokens = s.computed;
  if (options_.prefix_cache) stats_.prefix_query_tokens += static_cast<uint64_t>(r.prompt_tokens);
  stats_.prefix_hit_tokens += static_cast<uint64_t>(r.cached_tokens);
  if (trace_) trace_->begun(s);
}

// Gives the planned sequences their pages, has their drafts computed, and turns all into a step.
EngineStep& EngineLoop::make_step() {
  step_.clear();  // a failed one may have left something
  advancing_.clear();
  for (Chunk& chunk : plan_.chunks) {
    Sequence& s = *step_.sequences.emplace_back(&*observed(chunk.id));
    assert(s.computed <= chunk.first);
    if (!s.begun) begin_computing(s);
    chunk.first = s.computed;  // less than planned if admitting another sequence evicted pages that were found
    chunk.wants_logits = chunk.first + chunk.rows == static_cast<int>(s.tokens.size());
    cache_.grow(s, chunk.rows, chunk.drafts);
  }
  ended(StepPhase::kPages);
  draft_stage_.draft(step_.sequences, plan_.chunks);
  if (draft_stage_.on()) ended(StepPhase::kDraft);
  for (size_t i = 0; i < plan_.chunks.size(); ++i) {
    Sequence& s = *step_.sequences[i];
    cache_.shrink(s, plan_.chunks[i].rows, plan_.chunks[i].drafts);
    builder_.add(s, plan_.chunks[i], step_);
  }
  return step_;
}

// ahead: its pass has been launched.
StepResults& EngineLoop::compute(EngineStep& step, bool ahead) {
  logits_stage_.prepare(step.samples);
  if (picks_logits_ && !ahead) logits_stage_.choose_picks(step.samples, step.logits, step.forward.picks);
  ended(StepPhase::kBuild);
  const ForwardOutput& output = ahead ? orders_.finish_ahead() : orders_.run(step.forward);
  if (ahead) ahead_.end();
  ended(StepPhase::kForward);
  results_.expert_bytes = output.expert_bytes;
  stats_.logits_bytes += output.logits_bytes;
  count_reads(output.expert_reads, stats_);
  for (size_t i = 0; i < step.pooled.size(); ++i)
    take_pooled(*step.sequences[step.pooled[i]]->request, step.forward.pooled[i], output.pooled[i], model_.info.labels);
  const auto vocab = static_cast<size_t>(model_.info.vocab_size);
  for (const EngineStep::KeptLogits& kept : step.kept)
    take_logits(*step.sequences[kept.chunk]->request, output.logits.subspan(kept.row * vocab, kept.rows * vocab));
  logits_stage_.sample(step.samples, output, results_.samples);
  ended(StepPhase::kSample);
  return results_;
}

// While the step's pass runs elsewhere. Copies may take half of the time that the pass is expected to take; what they leave is
// copied when it has to be.
void EngineLoop::work_meanwhile() {
  if (runs_ahead_) ahead_.launch(step_);
  outbox_.tell();
  if (!orders_.copies_meanwhile()) return;
  StepWork work;
  for (const Chunk& c : plan_.chunks) work.add(c.rows + c.drafts, c.first);
  const std::chrono::duration<double> quarter(costs_.costs().seconds(work) / 4);
  const auto share = std::chrono::duration_cast<Clock::duration>(quarter);
  const auto now = Clock::now();
  poll_loader(now + share);
  cache_.shared().store_finished();
  // As many as a step can take.
  const int pages = limits_.max_rows / kPageTokens + static_cast<int>(roster_.running().size());
  cache_.shared().store_ahead(pages * state_.needs.groups, now + 2 * share);
}

void EngineLoop::poll_loader(Clock::time_point until) {
  loader_.poll([this](SequenceId id) { return roster_.find(id); }, until);
}

// ---- take the results ----

void EngineLoop::take(EngineStep& step, StepResults& results) {
  return_lost(step, results.samples);
  for (Sequence* s : step.sequences) cache_.register_finished(*s);
  end_pooled(step);
  take_samples(step, results.samples);
  if (recorder_) record(step);
  advance_states();
  take_features(step);
  watch_.add_parts(plan_.chunks, step.sampling);
  step.samples.clear();  // they keep requests, which keep their adapters
  roster_.remove_ended();
  if (!orders_.computes_apart() || roster_.running().empty()) catch_up();
  ended(StepPhase::kDeliver);
}

// Rows that the next pass had overwritten before they turned out to be needed whole: the next step computes them again.
void EngineLoop::return_lost(EngineStep& step, std::span<const SampleResult> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].lost) continue;
    Sequence& s = *step.sampling[i].sequence;
    --s.computed;
    s.wants_row = true;
    cache_.shrink(s, 1, 0);
  }
}

void EngineLoop::end_pooled(const EngineStep& step) {
  const auto end = [&](size_t chunk) {
    Sequence& s = *step.sequences[chunk];
    count_prompt(s);
    roster_.end(s, FinishReason::kStop);
  };
  for (size_t i = 0; i < step.pooled.size(); ++i)
    if (step.forward.pooled[i].last) end(step.pooled[i]);
  for (const EngineStep::KeptLogits& kept : step.kept)
    if (kept.last) end(kept.chunk);
}

// Which of the target's hidden states are those of tokens that stay.
void EngineLoop::take_features(const EngineStep& step) {
  const DraftModel::Reads reads = draft_stage_.reads();
  if (reads == DraftModel::Reads::kNothing) return;
  int row = 0;
  for (size_t i = 0; i < plan_.chunks.size(); ++i) {
    const Chunk& chunk = plan_.chunks[i];
    Sequence& s = *step.sequences[i];
    const bool all = reads == DraftModel::Reads::kAllRows;
    if (!all && !chunk.wants_logits) continue;
    const int first = all ? chunk.first : chunk.first + chunk.rows - 1;
    if (!s.ended()) draft_stage_.take_features(s, row, first, std::max(0, s.computed - first));
    row += (all ? chunk.rows : 1) + chunk.drafts;
  }
}

void EngineLoop::take_samples(EngineStep& step, std::span<SampleResult> results) {
  for (size_t i = 0; i < step.samples.size(); ++i) {
    const SampleRequest& request = step.samples[i];
    SampleResult& result = results[i];
    Sampling& sampling = step.sampling[i];
    Sequence& s = *sampling.sequence;
    if (!step.forks.empty() && &s == &step.forks.front() && !begin_fork(step)) {
      sampling.sequence = nullptr;
      continue;
    }
    if (s.ended()) continue;
    if (request.samples || result.failure) count_prompt(s);
    roster_.attempt(s, [&] {
      if (result.failure) std::rethrow_exception(result.failure);
      if (request.samples) return take_tokens(sampling, request, std::move(result));
      Sampled& described = result.described;
      s.request->prompt_logprobs[static_cast<size_t>(sampling.position) + 1] = {described.token, described.logprob,
                                                                                std::move(described.top_logprobs)};
    });
  }
}

void EngineLoop::take_tokens(Sampling& sampling, const SampleRequest& request, SampleResult&& result) {
  Sequence& s = *sampling.sequence;
  const auto drafts = static_cast<int>(request.drafts.size());
  Chosen chosen = take_sampled(s, request, std::move(result), options_.forced_tokens);
  sampling.tokens = static_cast<int>(chosen.outputs.size());
  if (drafts > 0) take_drafts(sampling, drafts, chosen);
  if (trace_ && sampling.tokens > 0 && s.generated() == sampling.tokens) trace_->first_token(s);
  deliver(s, chosen);
}

// What each sequence got, for whoever replays the step.
void EngineLoop::record(const EngineStep& step) {
  std::vector<RecordedSample> sampled;
  for (size_t i = 0; i < step.samples.size(); ++i) {
    const Sampling& sampling = step.sampling[i];
    if (!sampling.sequence || !step.samples[i].samples) continue;
    const TokenIds& all = sampling.sequence->tokens;
    sampled.push_back({.sequence = sampling.sequence->id, .tokens = TokenIds(all.end() - sampling.tokens, all.end())});
  }
  recorder_->end(sampled);
}

// The first of the forks joins the others and shares the pages of choice 0. Returns false, and drops it, if choice 0 has
// failed, and its other choices with it.
bool EngineLoop::begin_fork(EngineStep& step) {
  Sequence& fork = step.forks.front();
  const auto first = std::ranges::find(step.sequences, fork.request, &Sequence::request);
  if (first == step.sequences.end()) {
    step.forks.pop_front();
    return false;
  }
  (*first)->forks_pending = false;  // from here on each choice ends for itself
  const bool runs = roster_.add_choice(step.forks, options_.kv_cache);
  if (runs) roster_.attempt(fork, [&] { cache_.share(**first, fork); });
  return true;
}

void EngineLoop::take_drafts(const Sampling& sampling, int drafts, const Chosen& chosen) {
  Sequence& s = *sampling.sequence;
  const int lacks = cache_.keep_drafts(s, drafts, chosen.accepted);
  if (lacks > 0) advancing_.push_back({&s, sampling.first_draft, lacks});
  draft_stage_.learn(s, drafts, chosen.accepted, chosen.predicted);
  stats_.drafted_tokens += static_cast<uint64_t>(drafts);
  stats_.accepted_tokens += static_cast<uint64_t>(chosen.accepted);
}

// The states of sequences that have ended may belong to others by now.
void EngineLoop::advance_states() {
  for (const Advancing& a : advancing_) {
    if (!a.sequence->ended()) orders_.advance({a.sequence->cached.state.slot, a.first_draft, a.drafts});
  }
}

// To the client.
void EngineLoop::deliver(Sequence& s, Chosen& chosen) {
  if (s.given_up) return roster_.leave(s, FinishReason::kError);
  stats_.forced_tokens += static_cast<uint64_t>(chosen.forced);
  for (Output& out : chosen.outputs) {
    ++stats_.generated_tokens;
    shares_.charge(s.request->tenant_number, kGeneratedTokenWeight);
    const FinishReason finish = out.finish;
    outbox_.add(s, std::move(out));
    if (finish == FinishReason::kNone) continue;
    draft_stage_.remember(s);
    return roster_.leave(s, finish);
  }
  if (chosen.end) return roster_.end(s, *chosen.end, chosen.error);
  if (!options_.kv_cache) cache_.release(s);
}

// Before it gets its first token.
void EngineLoop::count_prompt(const Sequence& s) {
  if (s.choice == 0 && s.generated() == 0) stats_.prompt_tokens += static_cast<uint64_t>(s.request->prompt_tokens);
}

void EngineLoop::count_step(const EngineStep& step, const StepResults& results, Clock::time_point began,
                            double seconds) {
  ++stats_.steps;
  StepWork work, decoding;
  bool prompts = false;
  int tokens = 0;    // generated by the sequences that decode
  double bytes = 0;  // read, if all sequences decode
  for (const Chunk& c : plan_.chunks) {
    work.add(c.rows + c.drafts, c.first);
    if (c.decodes) decoding.add(c.rows + c.drafts, c.first);
    prompts |= !c.decodes;
  }
  for (const Sampling& sampling : step.sampling) tokens += sampling.decodes ? sampling.tokens : 0;
  if (draft_stage_.on()) {
    const StepCosts& costs = costs_.costs();
    draft_stage_.finish(seconds - (prompts ? costs.seconds(work) - costs.seconds(decoding) : 0), tokens);
  }
  costs_.learn(work, seconds);
  (prompts ? stats_.prompt_seconds : stats_.decode_seconds) += seconds;
  ++(prompts ? stats_.prompt_steps : stats_.decode_steps);
  if (!prompts) {
    const Weights& weights = model_.target.weights;
    bytes = static_cast<double>(weights.decode_bytes - weights.expert_bytes) +
            static_cast<double>(results.expert_bytes) +
            static_cast<double>(work.attended) * static_cast<double>(model_.info.kv_bytes_per_token);
    for (const Chunk& c : plan_.chunks) bytes += static_cast<double>(model_.cache.layout.bounded_bytes(c.first + 1));
    stats_.decode_bytes += bytes;
    stats_.decode_tokens += static_cast<uint64_t>(tokens);
    stats_.decode_sequences += plan_.chunks.size();
    ++stats_.decode_steps_by_rows[static_cast<size_t>(std::min(work.rows, EngineStats::kMostCountedRows))];
    if (std::cmp_greater(work.rows, plan_.chunks.size())) {
      ++stats_.verify_steps;
      stats_.verify_seconds += seconds - draft_stage_.model_seconds();
    }
  }
  watch_.end_step(began, seconds, work.rows, step.logits, bytes);
}

void EngineLoop::write_stats(EngineStats& stats) const {
  stats = stats_;
  stats.running = static_cast<int>(roster_.running().size());
  stats.waiting = static_cast<int>(roster_.waiting().size());
  stats.finished_requests = roster_.finished();
  for (const Sequence& s : roster_.running()) {
    stats.kv_slots_unused += s.pages.pages() * kPageTokens - s.computed;
  }
  stats.pages_loaded = loader_.loaded_pages();
  draft_stage_.add_stats(stats);
  cache_.shared().add_stats(stats);
  write_store_stats(stats);
  stats.gathered_bytes = model_.gathered().bytes;
  stats.stage_bytes = model_.stage_bytes();
  stats.moved_expert_bytes = model_.host_experts ? model_.host_experts->moved_bytes() : 0;
}

}  // namespace quire
