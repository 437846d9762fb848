#include "engine/engine_loop.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "base/error.h"

namespace quire {
namespace {

// Waiting sequences that a step looks at: more are not admitted at once, and each look-up in the prefix cache takes
// time.
constexpr size_t kCandidates = 16;

// What a generated token counts beside one of a prompt in a tenant's share: about what it costs, in a full batch.
constexpr double kGeneratedTokenWeight = 2;

SchedulerLimits scheduler_limits(const EngineOptions& o, const LoadedModel& model) {
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

EngineLoop::EngineLoop(const EngineOptions& options, LoadedModel& model)
    : options_(options),
      model_(model),
      tokenizer_(model.text.tokenizer ? &*model.text.tokenizer : nullptr),
      limits_(scheduler_limits(options, model)),
      cache_(*model.kv, page_cache_options(options, model.cache_identity)),
      scratch_(static_cast<size_t>(model.team.size())),
      hidden_(static_cast<size_t>(model.config.hidden)) {
  running_.reserve(static_cast<size_t>(limits_.max_running));
  stats_.kv_pages = model.info.kv_pages;
}

// For one more sequence: it has a place to wait when all others wait.
void EngineLoop::make_place() {
  const size_t all = running_.size() + waiting_.size() + 1;
  if (waiting_.capacity() < all) waiting_.reserve(2 * all);
}

void EngineLoop::add(const std::shared_ptr<RequestState>& request, const TokenIds& prompt) {
  try {
    make_place();
    auto s = std::make_unique<Sequence>(next_sequence_++, request, 0, prompt, tokenizer_);
    s->forks_pending = request->sampling.n > 1;
    cache_.begin(*s);
    if (request->sampling.prompt_logprobs) {
      request->prompt_logprobs.resize(prompt.size());
      request->prompt_logprobs[0].id = prompt[0];
    }
    request->tenant_number = shares_.enter(request->tenant);
    request->choices_left = request->sampling.n;
    waiting_.push_back(std::move(s));
  } catch (const std::bad_alloc&) {
    for (int choice = 0; choice < request->sampling.n; ++choice) refuse(*request, choice);
  }
}

void EngineLoop::cancel(RequestId id) {
  for (auto* list : {&running_, &waiting_}) {
    for (auto& s : *list) {
      if (s->request->id == id) s->request->cancelled = true;
    }
  }
}

Sequence* EngineLoop::find(SequenceId id) const {
  for (const auto* list : {&running_, &waiting_}) {
    for (const auto& s : *list) {
      if (s->id == id) return s.get();
    }
  }
  return nullptr;
}

void EngineLoop::choice_ended(RequestState& r) {
  if (--r.choices_left == 0) shares_.leave(r.tenant_number);
  ++stats_.finished_requests;
}

// Every choice of the request is told, those that were not forked yet too.
void EngineLoop::end(Sequence& s, FinishReason reason, const std::string& error) {
  s.finish(reason, error);
  while (s.forks_pending && s.choice + 1 < s.request->sampling.n) {
    choice_ended(*s.request);
    ++s.choice;
    s.finish(reason, error);
  }
  leave(s);
}

// The client knows that the answer has ended.
void EngineLoop::leave(Sequence& s) {
  cache_.release(s);
  choice_ended(*s.request);
  s.request = nullptr;
}

void EngineLoop::remove_ended() {
  for (auto* list : {&running_, &waiting_}) std::erase_if(*list, [](const auto& s) { return !s->request; });
}

void EngineLoop::end_unwanted() {
  const auto now = Clock::now();
  for (auto* list : {&running_, &waiting_}) {
    for (auto& s : *list) {
      const bool late = now >= s->request->deadline;
      if (late || s->request->cancelled) end(*s, late ? FinishReason::kTimeout : FinishReason::kCancelled);
    }
  }
  remove_ended();
}

void EngineLoop::end_all(FinishReason reason, const std::string& error) {
  remove_ended();
  for (auto* list : {&running_, &waiting_}) {
    for (auto& s : *list) end(*s, reason, error);
  }
  remove_ended();
}

void EngineLoop::wait_again(std::unique_ptr<Sequence> s) {
  cache_.release(*s);
  const auto after = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const auto& other) { return other->request->id > s->request->id; });
  waiting_.insert(after, std::move(s));
}

SequenceView EngineLoop::view(const Sequence& s, bool counts_own_pages) const {
  SequenceView v;
  v.id = s.id;
  v.arrival = static_cast<uint64_t>(s.request->id);
  v.priority = s.request->priority;
  v.tokens = static_cast<int>(s.tokens.size());
  v.computed = s.computed;
  v.pages = static_cast<int>(s.pages.pages().size());
  const PagePool& pool = cache_.pool();
  if (counts_own_pages) {
    for (const PageId page : s.pages.pages()) v.own_pages += pool.users(page) == 1;
  }
  // Only the page that the next token falls into can be shared and written.
  const auto next_page = static_cast<size_t>(s.computed / kPageTokens);
  v.shared_tail = next_page < s.pages.pages().size() && pool.shared(s.pages.pages()[next_page]);
  v.loading = s.cached.loading;
  v.all_logits = s.request->sampling.prompt_logprobs && s.wants_all_rows();
  return v;
}

// What the scheduler is to know, into state_.
void EngineLoop::observe() {
  for (auto& s : running_) {
    if (!s->cached.loading) cache_.advance(*s);  // may take idle pages
  }
  state_.free_pages = cache_.available_pages();
  state_.page_tokens = kPageTokens;
  state_.running.clear();
  // Only when pages may run out does it matter what preempting would give.
  const bool scarce = state_.free_pages < 2 * static_cast<int>(running_.size()) + 1;
  for (auto& s : running_) {
    state_.running.push_back(view(*s, scarce));
    state_.running.back().next_page = cache_.next_page(*s);
  }
  sort_running(state_.running);

  state_.waiting.clear();
  if (waiting_.empty() || running_.size() >= static_cast<size_t>(limits_.max_running)) return;
  queue_.clear();
  for (const auto& s : waiting_)
    queue_.push_back({static_cast<uint64_t>(s->request->id), s->request->priority, s->request->tenant_number,
                      static_cast<double>(s->tokens.size())});
  shares_.copy_served(served_);
  order_waiting(queue_, served_, since_oldest_, kCandidates, order_);
  const auto now = Clock::now();
  for (const size_t i : order_) {
    Sequence& s = *waiting_[i];
    cache_.look_up(s, costs_.costs());
    SequenceView v = view(s, false);
    v.computed = s.cached.found * kPageTokens + s.cached.tail;
    v.pages = s.cached.found;
    v.idle_pages = s.cached.idle;
    v.loads = s.cached.loads;
    v.next_page = cache_.next_page(s);
    v.waited = seconds(now - s.request->submitted);
    state_.waiting.push_back(v);
  }
}

void EngineLoop::apply_plan() {
  const auto move_out = [](Sequences& from, SequenceId id) {
    const auto at = std::find_if(from.begin(), from.end(), [&](const auto& s) { return s->id == id; });
    auto s = std::move(*at);
    from.erase(at);
    return s;
  };
  for (const SequenceId id : plan_.preempted) wait_again(move_out(running_, id));
  stats_.preemptions += plan_.preempted.size();
  for (const SequenceId id : plan_.admitted) {
    const bool oldest = waiting_.front()->id == id;
    since_oldest_ = oldest ? 0 : since_oldest_ + 1;
    running_.push_back(move_out(waiting_, id));
    Sequence& s = *running_.back();
    cache_.adopt(s);
    s.begun = false;
    if (std::find(plan_.loads.begin(), plan_.loads.end(), id) != plan_.loads.end()) cache_.start_loads(s);
  }
}

// Not before: pages that the store was thought to have may turn out to be missing, and others may be finished
// meanwhile.
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

void EngineLoop::step() {
  try {
    try_step();
  } catch (const std::bad_alloc&) {
    end_all(FinishReason::kError, kOutOfMemory);
  }
}

void EngineLoop::try_step() {
  end_unwanted();
  cache_.poll_loads([&](SequenceId id) { return find(id); });
  if (idle()) return;
  observe();
  make_plan(state_, limits_, costs_.costs(), plan_);
  apply_plan();
  if (plan_.chunks.empty()) {
    if (plan_.preempted.empty() && plan_.admitted.empty()) cache_.wait_for_loads();
    return;
  }
  const auto start = Clock::now();
  const auto logits = execute();
  pool_hidden_states();
  take_logits(logits);
  remove_ended();
  count_step(seconds(Clock::now() - start));
}

std::span<float> EngineLoop::execute() {
  rows_.clear();
  spans_.clear();
  logit_rows_.clear();
  planned_.clear();
  for (Chunk& chunk : plan_.chunks) {
    Sequence& s = *planned_.emplace_back(find(chunk.id));
    assert(s.computed <= chunk.first);
    if (!s.begun) begin_computing(s);
    chunk.first = s.computed;  // earlier than planned, where admitting another has evicted what was found
    chunk.wants_logits = chunk.first + chunk.rows == static_cast<int>(s.tokens.size());
    cache_.grow(s, chunk.rows);
    spans_.push_back({static_cast<int>(rows_.size()), chunk.rows, chunk.first, s.page_ids});
    const bool all = s.request->sampling.prompt_logprobs && s.wants_all_rows();
    for (int i = 0; i < chunk.rows; ++i) {
      const int position = chunk.first + i;
      const bool last = position + 1 == static_cast<int>(s.tokens.size());
      const bool wanted = s.request->pooling == Pooling::kNone && (last || all);
      rows_.push_back({s.tokens[static_cast<size_t>(position)], position, wanted});
      if (wanted) logit_rows_.push_back({&s, position, last});
    }
    s.computed += chunk.rows;
  }
  const auto logits = model_.decoder->forward({rows_, spans_});
  for (Sequence* s : planned_) cache_.register_finished(*s);
  return logits;
}

void EngineLoop::pool_hidden_states() {
  for (size_t i = 0; i < plan_.chunks.size(); ++i) {
    const Chunk& chunk = plan_.chunks[i];
    Sequence& s = *planned_[i];
    RequestState& r = *s.request;
    if (r.pooling == Pooling::kNone) continue;
    const bool mean = r.pooling == Pooling::kMean;
    if (chunk.first == 0 || r.hidden.empty()) r.hidden.assign(hidden_.size(), 0.0f);
    for (int row = 0; row < chunk.rows; ++row) {
      if (!mean && !(chunk.wants_logits && row + 1 == chunk.rows)) continue;
      model_.decoder->final_hidden(spans_[i].row + row, hidden_);
      for (size_t j = 0; j < hidden_.size(); ++j) r.hidden[j] += hidden_[j];
    }
    if (!chunk.wants_logits) continue;
    s.finish_pooling();
    stats_.prompt_tokens += static_cast<uint64_t>(r.prompt_tokens);
    leave(s);
  }
}

void EngineLoop::take_logits(std::span<float> logits) {
  const auto vocab = static_cast<size_t>(model_.config.vocab);
  sampled_.assign(logit_rows_.size(), std::nullopt);
  errors_.assign(logit_rows_.size(), {});
  const auto row_logits = [&](size_t i) { return logits.subspan(i * vocab, vocab); };
  // First what needs the logits untouched.
  for (size_t i = 0; i < logit_rows_.size(); ++i) {
    const LogitRow& row = logit_rows_[i];
    if (row.samples && row.sequence->forks_pending && row.sequence->request->max_new_tokens > 0)
      fork(*row.sequence, row_logits(i));
  }
  model_.team.for_tiles(static_cast<int>(logit_rows_.size()), [&](int tile, int thread) {
    const auto i = static_cast<size_t>(tile);
    const LogitRow& row = logit_rows_[i];
    const Sequence& s = *row.sequence;
    try {
      if (!row.samples) {
        sampled_[i] = describe_token(row_logits(i), s.tokens[static_cast<size_t>(row.position) + 1],
                                     *s.request->sampling.prompt_logprobs);
      } else if (s.request->max_new_tokens > 0) {
        sampled_[i] =
            sample(s.request->sampling, s.sample_row(row_logits(i), s.choice), scratch_[static_cast<size_t>(thread)]);
      }
    } catch (const Error& e) {
      errors_[i] = e.what();
    } catch (const std::bad_alloc&) {
      errors_[i] = kOutOfMemory;
    }
  });
  for (size_t i = 0; i < logit_rows_.size(); ++i) {
    const LogitRow& row = logit_rows_[i];
    Sequence& s = *row.sequence;
    if (!s.request) continue;  // ended at an earlier row
    if (row.samples || !errors_[i].empty()) {
      take_token(s, sampled_[i], errors_[i]);
    } else if (sampled_[i]) {
      s.request->prompt_logprobs[static_cast<size_t>(row.position) + 1] = {sampled_[i]->token, sampled_[i]->logprob,
                                                                           std::move(sampled_[i]->top_logprobs)};
    }
  }
}

// n > 1: the further choices begin with the pages and the logits of the first.
void EngineLoop::fork(Sequence& first, std::span<const float> logits) {
  first.forks_pending = false;
  for (int choice = 1; choice < first.request->sampling.n; ++choice) {
    try {
      add_choice(first, choice, logits);
    } catch (const std::bad_alloc&) {
      refuse(*first.request, choice);
      choice_ended(*first.request);
    }
  }
}

void EngineLoop::add_choice(const Sequence& first, int choice, std::span<const float> logits) {
  choice_logits_.assign(logits.begin(), logits.end());
  std::string error;
  std::optional<Sampled> token;
  try {
    token = sample(first.request->sampling, first.sample_row(choice_logits_, choice), scratch_[0]);
  } catch (const Error& e) {
    error = e.what();
  }
  auto s = std::make_unique<Sequence>(next_sequence_++, first.request, choice, first.tokens, tokenizer_);
  cache_.begin(*s);
  make_place();
  const bool runs = static_cast<int>(running_.size()) < limits_.max_running && options_.kv_cache;
  if (runs) cache_.share(first, *s);
  take_token(*s, token, error);
  if (!s->request) return;
  if (runs) {
    running_.push_back(std::move(s));
  } else {
    wait_again(std::move(s));
  }
}

void EngineLoop::take_token(Sequence& s, const std::optional<Sampled>& token, const std::string& error) {
  const bool first = s.generated() == 0;
  if (first && s.choice == 0) stats_.prompt_tokens += static_cast<uint64_t>(s.request->prompt_tokens);
  if (!error.empty()) return end(s, FinishReason::kError, error);
  if (!token) return end(s, FinishReason::kLength);                  // nothing was to be generated
  if (token->token == kNoToken) return end(s, FinishReason::kStop);  // nothing may be
  bool ended = false;
  try {
    ended = s.accept(*token);
  } catch (const std::bad_alloc&) {
    return end(s, FinishReason::kError, kOutOfMemory);
  }
  ++stats_.generated_tokens;
  shares_.charge(s.request->tenant_number, kGeneratedTokenWeight);
  if (ended) {
    leave(s);
  } else if (!options_.kv_cache) {
    cache_.release(s);
  }
}

void EngineLoop::count_step(double seconds) {
  ++stats_.steps;
  StepWork work;
  bool prompts = false;
  for (const Chunk& c : plan_.chunks) {
    work.add(c.rows, c.first);
    prompts |= c.rows > 1 || !c.wants_logits;
  }
  costs_.learn(work, seconds);
  (prompts ? stats_.prompt_seconds : stats_.decode_seconds) += seconds;
  ++(prompts ? stats_.prompt_steps : stats_.decode_steps);
  if (!prompts) {
    stats_.decode_bytes += static_cast<double>(model_.info.decode_bytes) +
                           static_cast<double>(work.attended) * static_cast<double>(model_.info.kv_bytes_per_token);
  }
}

EngineStats EngineLoop::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<int>(running_.size());
  stats.waiting = static_cast<int>(waiting_.size());
  for (const auto& s : running_)
    stats.kv_slots_unused += static_cast<int>(s->pages.pages().size()) * kPageTokens - s->computed;
  cache_.add_stats(stats);
  return stats;
}

}  // namespace quire
