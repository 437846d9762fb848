#include "quire/engine.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/signals.h"
#include "engine/loaded_model.h"
#include "engine/sequence.h"

namespace quire {

struct Engine::State {
  // Commands from other threads.
  struct Submission {
    std::shared_ptr<RequestState> request;
    TokenIds prompt;
  };

  EngineOptions options;
  LoadedModel model;
  TokenIds end_tokens;
  SchedulerLimits limits;

  std::mutex mutex;
  std::condition_variable wake;
  std::vector<Submission> submitted;
  std::vector<RequestId> cancelled;
  bool stopping = false;
  std::atomic<RequestId> next_request{1};

  // The engine thread's own.
  PagePool pool;
  std::list<std::unique_ptr<Sequence>> running, waiting;
  SequenceId next_sequence = 1;
  std::vector<SamplerScratch> scratch;  // one a thread
  std::vector<float> choice_logits;     // a copy for each further choice of n > 1
  std::vector<Row> rows;
  std::vector<Span> spans;
  std::vector<Sequence*> sampling;  // whose logits come, in order
  std::vector<std::optional<Sampled>> sampled;
  std::vector<std::string> errors;
  std::vector<PageCopy> copies;

  mutable std::mutex stats_mutex;
  EngineStats stats;
  std::thread thread;

  explicit State(const EngineOptions& o)
      : options(o),
        model(o),
        limits{o.max_num_batched_tokens, o.max_num_seqs, o.chunked_prefill && o.kv_cache},
        pool(static_cast<uint32_t>(model.info.kv_pages), kPageTokens),
        scratch(static_cast<size_t>(model.team.size())) {
    end_tokens = model.config.eos;
    if (model.text.tokenizer) {
      for (const TokenId id : model.text.tokenizer->end_of_generation()) {
        if (std::find(end_tokens.begin(), end_tokens.end(), id) == end_tokens.end()) end_tokens.push_back(id);
      }
    }
    stats.kv_pages = model.info.kv_pages;
    const BlockSignals leave_signals_to_the_caller;
    thread = std::thread([this] { run(); });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_one();
    thread.join();
  }

  const Tokenizer* tokenizer() const { return model.text.tokenizer ? &*model.text.tokenizer : nullptr; }

  void run() {
    for (;;) {
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] {
          return stopping || !submitted.empty() || !cancelled.empty() || !running.empty() || !waiting.empty();
        });
        if (stopping) break;
        take_commands(lock);
      }
      drop_cancelled();
      if (!running.empty() || !waiting.empty()) step();
      update_stats();
    }
    std::vector<Submission> left;
    {
      const std::lock_guard lock(mutex);
      left.swap(submitted);
    }
    for (Submission& s : left) add(std::move(s));
    for (auto* list : {&running, &waiting}) {
      for (auto& sequence : *list) end(*sequence, FinishReason::kCancelled);
      list->clear();
    }
  }

  // With the lock held on entry; released while callbacks may run.
  void take_commands(std::unique_lock<std::mutex>& lock) {
    std::vector<Submission> arrived;
    std::vector<RequestId> gone;
    arrived.swap(submitted);
    gone.swap(cancelled);
    lock.unlock();
    for (Submission& s : arrived) add(std::move(s));
    for (const RequestId id : gone) {
      for (auto* list : {&running, &waiting}) {
        for (auto& sequence : *list) {
          if (sequence->request->id == id) sequence->request->cancelled = true;
        }
      }
    }
  }

  void add(Submission s) {
    auto sequence = std::make_unique<Sequence>(next_sequence++, s.request, 0, s.prompt, tokenizer());
    sequence->forks_pending = s.request->sampling.n > 1;
    waiting.push_back(std::move(sequence));
  }

  // Every choice of the request is told, those that were not forked yet too.
  void end(Sequence& s, FinishReason reason, const std::string& error = {}) {
    s.release(pool);
    const int choices = s.forks_pending ? s.request->sampling.n : 1;
    for (int i = 0; i < choices; ++i) {
      s.choice += i > 0;
      s.finish(reason, error);
    }
    const std::lock_guard lock(stats_mutex);
    ++stats.finished_requests;
  }

  void drop_cancelled() {
    for (auto* list : {&running, &waiting}) {
      for (auto it = list->begin(); it != list->end();) {
        if ((*it)->request->cancelled) {
          const auto sequence = std::move(*it);
          it = list->erase(it);
          end(*sequence, FinishReason::kCancelled);
        } else {
          ++it;
        }
      }
    }
  }

  SchedulerState view() const {
    SchedulerState state;
    state.free_pages = static_cast<int>(pool.free_pages());
    state.page_tokens = pool.page_tokens();
    for (const auto& s : running) state.running.push_back(s->view(pool));
    for (const auto& s : waiting) {
      // What lies far behind cannot be admitted in this step.
      if (static_cast<int>(state.waiting.size()) >= limits.max_running) break;
      state.waiting.push_back(s->view(pool));
    }
    return state;
  }

  void step() {
    const StepPlan step_plan = plan(view(), limits);
    for (const SequenceId id : step_plan.preempted) {
      const auto it = std::find_if(running.begin(), running.end(), [&](const auto& s) { return s->id == id; });
      (*it)->release(pool);
      waiting.splice(waiting.begin(), running, it);
    }
    for (size_t i = 0; i < step_plan.admitted.size(); ++i) {
      assert(waiting.front()->id == step_plan.admitted[i]);
      running.splice(running.end(), waiting, waiting.begin());
    }
    if (step_plan.chunks.empty()) return;
    const auto logits = execute(step_plan);
    choose(logits);
    const std::lock_guard lock(stats_mutex);
    ++stats.steps;
    stats.preemptions += step_plan.preempted.size();
  }

  std::span<float> execute(const StepPlan& step_plan) {
    rows.clear();
    spans.clear();
    sampling.clear();
    copies.clear();
    for (const Chunk& chunk : step_plan.chunks) {
      Sequence& s = **std::find_if(running.begin(), running.end(), [&](const auto& r) { return r->id == chunk.id; });
      s.grow(pool, chunk.rows, copies);
      spans.push_back({static_cast<int>(rows.size()), chunk.rows, chunk.first, s.page_ids});
      for (int i = 0; i < chunk.rows; ++i) {
        const int position = chunk.first + i;
        rows.push_back({s.tokens[static_cast<size_t>(position)], position, chunk.wants_logits && i + 1 == chunk.rows});
      }
      s.computed += chunk.rows;
      if (chunk.wants_logits) sampling.push_back(&s);
    }
    for (const PageCopy& copy : copies)
      model.kv->copy_page(static_cast<int>(index(copy.from)), static_cast<int>(index(copy.to)));
    return model.decoder->forward({rows, spans});
  }

  void choose(std::span<float> logits) {
    const auto vocab = static_cast<size_t>(model.config.vocab);
    sampled.assign(sampling.size(), std::nullopt);
    errors.assign(sampling.size(), {});
    fork(logits);
    model.team.for_tiles(static_cast<int>(sampling.size()), [&](int i, int thread) {
      const auto index = static_cast<size_t>(i);
      const Sequence& s = *sampling[index];
      sampled[index] = try_sample(s, logits.subspan(index * vocab, vocab), s.choice,
                                  scratch[static_cast<size_t>(thread)], errors[index]);
    });
    for (size_t i = 0; i < sampling.size(); ++i) {
      take_token(*sampling[i], sampled[i], errors[i]);
    }
  }

  static std::optional<Sampled> try_sample(const Sequence& s, std::span<float> logits, int choice,
                                           SamplerScratch& scratch, std::string& error) {
    try {
      return sample(s.request->sampling, s.sample_row(logits, choice), scratch);
    } catch (const Error& e) {
      error = e.what();
      return std::nullopt;
    }
  }

  // n > 1: the further choices begin with the pages and the logits of the first.
  void fork(std::span<float> logits) {
    const auto vocab = static_cast<size_t>(model.config.vocab);
    for (size_t i = 0; i < sampling.size(); ++i) {
      Sequence& first = *sampling[i];
      if (!first.forks_pending) continue;
      first.forks_pending = false;
      for (int choice = 1; choice < first.request->sampling.n; ++choice) {
        const auto row = logits.subspan(i * vocab, vocab);
        choice_logits.assign(row.begin(), row.end());
        std::string error;
        const auto token = try_sample(first, choice_logits, choice, scratch[0], error);
        auto other = std::make_unique<Sequence>(next_sequence++, first.request, choice, first.tokens, tokenizer());
        const bool runs = static_cast<int>(running.size()) < limits.max_running && options.kv_cache;
        if (runs) {
          other->pages = first.pages.fork(pool);
          other->computed = first.computed;
        }
        Sequence& added = *other;
        (runs ? running : waiting).push_back(std::move(other));
        take_token(added, token, error);
      }
    }
  }

  void take_token(Sequence& s, const std::optional<Sampled>& token, const std::string& error) {
    bool ended = !token;
    if (token) {
      const bool first = s.generated() == 0;
      ended = s.accept(*token);
      const std::lock_guard lock(stats_mutex);
      ++stats.generated_tokens;
      if (first) stats.prompt_tokens += static_cast<uint64_t>(s.request->prompt_tokens);
      stats.finished_requests += ended;
    } else {
      end(s, FinishReason::kError, error);
    }
    if (!ended) {
      if (!options.kv_cache) s.release(pool);
      return;
    }
    s.release(pool);
    for (auto* list : {&running, &waiting}) list->remove_if([&](const auto& other) { return other.get() == &s; });
  }

  void update_stats() {
    const std::lock_guard lock(stats_mutex);
    stats.running = static_cast<int>(running.size());
    stats.waiting = static_cast<int>(waiting.size());
    stats.kv_pages_used = static_cast<int>(pool.page_count() - pool.free_pages());
  }
};

Engine::Engine(const EngineOptions& options) : state_(std::make_unique<State>(options)) {}
Engine::~Engine() = default;

RequestId Engine::submit(Request request, Callback callback) {
  State& s = *state_;
  const ModelInfo& model = s.model.info;
  validate(request.sampling, model.vocab_size);
  if (request.prompt.empty()) throw invalid("the prompt has no tokens");
  if (static_cast<int64_t>(request.prompt.size()) >= model.max_model_len) {
    throw invalid("the prompt has {} tokens; with at least one for the answer, {} fit (--max-model-len {})",
                  request.prompt.size(), model.max_model_len - 1, model.max_model_len);
  }
  for (const TokenId id : request.prompt) {
    if (id < 0 || id >= model.vocab_size)
      throw invalid("token id {} of the prompt is outside the vocabulary of {}", id, model.vocab_size);
  }
  if (!request.sampling.stop.empty() && !s.tokenizer())
    throw unsupported("stop strings need a vocabulary, which this model does not have");
  auto state = std::make_shared<RequestState>();
  state->id = s.next_request++;
  state->prompt_tokens = static_cast<int>(request.prompt.size());
  state->max_new_tokens =
      std::min(request.sampling.max_tokens.value_or(model.max_model_len), model.max_model_len - state->prompt_tokens);
  state->banned_early = s.end_tokens;
  state->banned_early.insert(state->banned_early.end(), request.sampling.stop_token_ids.begin(),
                             request.sampling.stop_token_ids.end());
  if (!request.sampling.ignore_eos) state->end_tokens = s.end_tokens;
  state->sampling = std::move(request.sampling);
  state->callback = std::move(callback);
  state->submitted = Clock::now();
  const RequestId id = state->id;
  {
    const std::lock_guard lock(s.mutex);
    s.submitted.push_back({std::move(state), std::move(request.prompt)});
  }
  s.wake.notify_one();
  return id;
}

void Engine::cancel(RequestId id) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->cancelled.push_back(id);
  }
  state_->wake.notify_one();
}

void Engine::generate(Request request, const Callback& callback) {
  std::mutex mutex;
  std::condition_variable done;
  int left = request.sampling.n;
  submit(std::move(request), [&](const Output& out) {
    callback(out);
    if (out.finish == FinishReason::kNone) return;
    const std::lock_guard lock(mutex);
    if (--left == 0) done.notify_one();
  });
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return left == 0; });
}

const ModelInfo& Engine::info() const { return state_->model.info; }

EngineStats Engine::stats() const {
  const std::lock_guard lock(state_->stats_mutex);
  return state_->stats;
}

const Tokenizer& Engine::tokenizer() const {
  if (!state_->tokenizer()) throw unsupported("{} has no vocabulary", info().name);
  return *state_->tokenizer();
}

const ChatTemplate* Engine::chat_template() const {
  return state_->model.chat_template ? &*state_->model.chat_template : nullptr;
}

std::string Engine::render(ChatInput input) const {
  if (!chat_template()) throw unsupported("{} has no chat template; use plain completions", info().name);
  for (const auto& [name, token] : state_->model.text.special_tokens.items()) {
    if (!input.special_tokens.contains(name)) input.special_tokens[name] = token;
  }
  return chat_template()->render(input);
}

TokenIds Engine::encode_chat(ChatInput input) const {
  return tokenizer().encode(render(std::move(input)), {.add_special = false, .parse_special = true});
}

}  // namespace quire
