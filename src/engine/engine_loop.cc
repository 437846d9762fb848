#include "engine/engine_loop.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "engine/sequence_view.h"

namespace quire {
namespace {

// Waiting sequences that a step considers: one step rarely admits more, and each look-up in the prefix cache costs
// time.
constexpr size_t kCandidates = 16;

// Weight of a generated token in a tenant's share, relative to a prompt token: about their ratio of cost in a full
// batch.
constexpr double kGeneratedTokenWeight = 2;

SchedulerLimits scheduler_limits(const LoadedModel& model) {
  const EngineOptions& o = model.options;
  SchedulerLimits l;
  l.max_rows = o.max_num_batched_tokens;
  l.max_running = o.max_num_seqs;
  l.max_logits = model.decoder->limits().max_logits;
  l.chunked_prefill = o.chunked_prefill && o.kv_cache;
  l.static_batches = o.scheduler == "static";
  l.tpot_target = o.tpot_target;
  l.ttft_target = o.ttft_target;
  return l;
}

}  // namespace

EngineLoop::EngineLoop(LoadedModel& model)
    : options_(model.options),
      model_(model),
      tokenizer_(model.target.text.tokenizer ? &*model.target.text.tokenizer : nullptr),
      limits_(scheduler_limits(model)),
      cache_(*model.kv, page_cache_options(model.options, model.cache_identity)),
      loader_(cache_, *model.kv),
      roster_(cache_, shares_, limits_.max_running),
      draft_stage_(model.options, model.draft_model.get(), model.text_drafters.get(), model.runtime.team,
                   model.target.config.vocab),
      logits_stage_(model.runtime.team, model.target.config.vocab, model.options.forced_tokens,
                    draft_stage_.wants_predictions()),
      pool_stage_(model) {
  stats_.kv_pages = model.info.kv_pages;
  state_.needs = cache_.needs();
}

void EngineLoop::step() {
  try {
    try_step();
  } catch (const std::bad_alloc&) {
    roster_.end_all(FinishReason::kError, kOutOfMemory);
  }
}

void EngineLoop::try_step() {
  roster_.end_unwanted();
  loader_.poll([&](SequenceId id) { return roster_.find(id); });
  if (idle()) return;
  observe();
  make_plan(state_, limits_, costs_.costs(), plan_);
  apply_plan();
  if (plan_.chunks.empty()) {
    if (plan_.preempted.empty() && plan_.admitted.empty()) loader_.wait();
    return;
  }
  const auto start = Clock::now();
  const auto logits = run_model();
  take_hidden_states();
  take_logits(logits);
  take_features();
  roster_.remove_ended();
  count_step(seconds(Clock::now() - start));
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
  state_.free_units = cache_.available_units();
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
    queue_.push_back({arrival(r), r.priority, r.tenant_number, static_cast<double>(s->tokens.size())});
    queued_.push_back(s);
  }
  shares_.copy_served(served_);
  order_waiting(queue_, served_, since_oldest_, kCandidates, order_);
  const auto now = Clock::now();
  for (const size_t i : order_) {
    Sequence& s = *queued_[i];
    cache_.look_up(s, costs_.costs(), loader_.disk_hangs());
    state_.waiting.push_back(view_waiting(s, cache_, now));
    observed_.emplace_back(s.id, queued_[i]);
  }
  if (cache_.has_states()) wait_for_checkpoints();
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
}

// Returns the logits of the rows in logits_stage_.
std::span<float> EngineLoop::run_model() {
  planned_.clear();
  for (Chunk& chunk : plan_.chunks) {
    Sequence& s = *planned_.emplace_back(&*observed(chunk.id));
    assert(s.computed <= chunk.first);
    if (!s.begun) begin_computing(s);
    chunk.first = s.computed;  // less than planned if admitting another sequence evicted pages that were found
    chunk.wants_logits = chunk.first + chunk.rows == static_cast<int>(s.tokens.size());
    cache_.grow(s, chunk.rows, chunk.drafts);
  }
  draft_stage_.draft(planned_, plan_.chunks);
  for (size_t i = 0; i < planned_.size(); ++i)
    cache_.shrink(*planned_[i], plan_.chunks[i].rows, plan_.chunks[i].drafts);
  rows_.clear();
  spans_.clear();
  logits_stage_.clear();
  for (size_t i = 0; i < planned_.size(); ++i) add_rows(*planned_[i], plan_.chunks[i]);
  const auto logits = model_.decoder->forward({rows_, spans_});
  for (Sequence* s : planned_) cache_.register_finished(*s);
  return logits;
}

void EngineLoop::add_rows(Sequence& s, const Chunk& chunk) {
  spans_.push_back({.row = static_cast<int>(rows_.size()),
                    .rows = chunk.rows + chunk.drafts,
                    .position = chunk.first,
                    .tables = s.pages.units(),
                    .state = s.cached.state,
                    .state_copies = s.cached.state_copies,
                    .rope_variant = s.request->rope_variant});
  const bool all = s.wants_all_logits();
  for (int i = 0; i < chunk.rows; ++i) {
    const int position = chunk.first + i;
    const bool last = position + 1 == static_cast<int>(s.tokens.size());
    const bool wanted = s.request->pooling == Pooling::kNone && (last || all);
    const int32_t segment =
        model_.target.config.segments > 1 && std::cmp_greater_equal(position, s.request->second_text);
    rows_.push_back({.token = s.tokens[static_cast<size_t>(position)],
                     .position = position,
                     .wants_logits = wanted,
                     .segment = segment});
    if (wanted) logits_stage_.add(s, position, last, last ? chunk.drafts : 0);
  }
  for (int i = 0; i < chunk.drafts; ++i) {
    rows_.push_back(
        {.token = s.drafts[static_cast<size_t>(i)], .position = chunk.first + chunk.rows + i, .wants_logits = true});
  }
  const auto of_chunk = std::span(rows_).last(static_cast<size_t>(chunk.rows + chunk.drafts));
  if (draft_stage_.reads() == DraftModel::Reads::kAllRows) {
    for (Row& row : of_chunk) row.wants_hidden = true;
  } else if (draft_stage_.reads() == DraftModel::Reads::kSampledRows && chunk.wants_logits) {
    for (Row& row : of_chunk.last(static_cast<size_t>(1 + chunk.drafts))) row.wants_hidden = true;
  }
  s.computed += chunk.rows;
  s.decodes |= chunk.wants_logits;
}

// ---- take the results ----

void EngineLoop::take_hidden_states() {
  for (size_t i = 0; i < plan_.chunks.size(); ++i) {
    const Chunk& chunk = plan_.chunks[i];
    Sequence& s = *planned_[i];
    RequestState& r = *s.request;
    if (r.pooling == Pooling::kNone) continue;
    pool_stage_.add(r, chunk, spans_[i].row);
    if (!chunk.wants_logits) continue;
    pool_stage_.finish(r);
    count_prompt(s);
    roster_.end(s, FinishReason::kStop);
  }
}

// Which of the target's hidden states are those of tokens that stay.
void EngineLoop::take_features() {
  const DraftModel::Reads reads = draft_stage_.reads();
  if (reads == DraftModel::Reads::kNothing) return;
  int row = 0;
  for (size_t i = 0; i < plan_.chunks.size(); ++i) {
    const Chunk& chunk = plan_.chunks[i];
    Sequence& s = *planned_[i];
    const bool all = reads == DraftModel::Reads::kAllRows;
    if (!all && !chunk.wants_logits) continue;
    const int first = all ? chunk.first : chunk.first + chunk.rows - 1;
    if (!s.ended()) draft_stage_.take_features(s, row, first, std::max(0, s.computed - first));
    row += (all ? chunk.rows : 1) + chunk.drafts;
  }
}

void EngineLoop::take_logits(std::span<float> logits) {
  for (const LogitsStage::Task& task : logits_stage_.tasks()) {
    const Sequence& s = *task.sequence;
    if (!task.samples || !s.forks_pending || s.request->max_new_tokens == 0) continue;
    roster_.attempt(*task.sequence, [&] { fork(task, logits); });
  }
  logits_stage_.sample(logits);
  for (LogitsStage::Task& task : logits_stage_.tasks()) {
    Sequence& s = *task.sequence;
    if (s.ended()) continue;
    if (task.samples || task.failure) count_prompt(s, task.chosen.outputs.size());
    roster_.attempt(s, [&] {
      task.rethrow_failure();
      if (task.drafts > 0) take_drafts(task);
      if (task.samples) return deliver(s, task.chosen);
      Sampled& described = task.described;
      s.request->prompt_logprobs[static_cast<size_t>(task.position) + 1] = {described.token, described.logprob,
                                                                            std::move(described.top_logprobs)};
    });
  }
}

// For n > 1, when the prompt of choice 0 has been computed: the other choices share its pages and its logits.
void EngineLoop::fork(const LogitsStage::Task& task, std::span<const float> logits) {
  Sequence& first = *task.sequence;
  Sequences choices;
  for (int choice = 1; choice < first.request->sampling.n; ++choice) {
    cache_.begin(choices.emplace_back(first.request, choice, first.tokens, tokenizer_));
  }
  first.forks_pending = false;  // from here on each choice ends for itself
  while (!choices.empty()) {
    Sequence& s = choices.front();
    const bool runs = roster_.add_choice(choices, options_.kv_cache);
    roster_.attempt(s, [&] {
      if (runs) cache_.share(first, s);
      Chosen chosen = logits_stage_.sample_choice(task, s, logits);
      deliver(s, chosen);
    });
  }
}

void EngineLoop::take_drafts(const LogitsStage::Task& task) {
  Sequence& s = *task.sequence;
  cache_.keep_drafts(s, task.drafts, task.chosen.accepted);
  draft_stage_.learn(s, task.drafts, task.chosen.accepted, task.chosen.predicted);
  stats_.drafted_tokens += static_cast<uint64_t>(task.drafts);
  stats_.accepted_tokens += static_cast<uint64_t>(task.chosen.accepted);
}

// Tells the client.
void EngineLoop::deliver(Sequence& s, Chosen& chosen) {
  stats_.forced_tokens += static_cast<uint64_t>(chosen.forced);
  for (Output& out : chosen.outputs) {
    ++stats_.generated_tokens;
    shares_.charge(s.request->tenant_number, kGeneratedTokenWeight);
    s.tell(out);
    if (out.finish == FinishReason::kNone) continue;
    draft_stage_.remember(s);
    return roster_.leave(s);
  }
  if (chosen.end) return roster_.end(s, *chosen.end, chosen.error);
  if (!options_.kv_cache) cache_.release(s);
}

// chosen: tokens that the step has given it.
void EngineLoop::count_prompt(const Sequence& s, size_t chosen) {
  const bool first = s.choice == 0 && std::cmp_equal(s.generated(), chosen);
  if (first) stats_.prompt_tokens += static_cast<uint64_t>(s.request->prompt_tokens);
}

void EngineLoop::count_step(double seconds) {
  ++stats_.steps;
  StepWork work, decoding;
  bool prompts = false;
  int tokens = 0;  // of the sequences that decode
  auto task = logits_stage_.tasks().begin();
  for (size_t i = 0; i < plan_.chunks.size(); ++i) {
    const Chunk& c = plan_.chunks[i];
    work.add(c.rows + c.drafts, c.first);
    if (c.decodes) decoding.add(c.rows + c.drafts, c.first);
    prompts |= !c.decodes;
    for (; task != logits_stage_.tasks().end() && task->sequence == planned_[i]; ++task)
      tokens += c.decodes ? static_cast<int>(task->chosen.outputs.size()) : 0;
  }
  if (draft_stage_.on()) {
    const StepCosts& costs = costs_.costs();
    draft_stage_.finish(seconds - (prompts ? costs.seconds(work) - costs.seconds(decoding) : 0), tokens);
  }
  costs_.learn(work, seconds);
  (prompts ? stats_.prompt_seconds : stats_.decode_seconds) += seconds;
  ++(prompts ? stats_.prompt_steps : stats_.decode_steps);
  if (!prompts) {
    const Weights& weights = model_.target.weights;
    stats_.decode_bytes += static_cast<double>(weights.decode_bytes - weights.expert_bytes) +
                           static_cast<double>(model_.decoder->expert_bytes()) +
                           static_cast<double>(work.attended) * static_cast<double>(model_.info.kv_bytes_per_token);
    for (const Chunk& c : plan_.chunks)
      stats_.decode_bytes += static_cast<double>(model_.kv->layout().bounded_bytes(c.first + 1));
    stats_.decode_tokens += static_cast<uint64_t>(tokens);
    stats_.decode_sequences += plan_.chunks.size();
    ++stats_.decode_steps_by_rows[static_cast<size_t>(std::min(work.rows, EngineStats::kMostCountedRows))];
    if (std::cmp_greater(work.rows, plan_.chunks.size())) {
      ++stats_.verify_steps;
      stats_.verify_seconds += seconds - draft_stage_.model_seconds();
    }
  }
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
  cache_.add_stats(stats);
}

}  // namespace quire
