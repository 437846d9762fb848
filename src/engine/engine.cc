#include "quire/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/signals.h"
#include "engine/engine_loop.h"

namespace quire {

struct Engine::State {
  // Commands from other threads.
  struct Submission {
    std::shared_ptr<RequestState> request;
    TokenIds prompt;
  };

  LoadedModel model;
  nlohmann::ordered_json template_kwargs = nlohmann::ordered_json::object();
  TokenIds end_tokens;
  EngineLoop loop;  // the engine thread's own

  std::mutex mutex;
  std::condition_variable wake;
  std::vector<Submission> submitted;
  std::vector<RequestId> cancelled;
  bool stopping = false;
  std::atomic<RequestId> next_request{1};

  mutable std::mutex stats_mutex;
  EngineStats stats;
  std::thread thread;

  explicit State(const EngineOptions& o) : model(o), end_tokens(model.config.eos), loop(o, model) {
    if (!o.chat_template_kwargs.empty()) {
      template_kwargs = nlohmann::ordered_json::parse(o.chat_template_kwargs, nullptr, false);
      if (!template_kwargs.is_object())
        throw invalid("--chat-template-kwargs must be a JSON object, not {}", o.chat_template_kwargs);
    }
    if (model.text.tokenizer) {
      for (const TokenId id : model.text.tokenizer->end_of_generation()) {
        if (std::find(end_tokens.begin(), end_tokens.end(), id) == end_tokens.end()) end_tokens.push_back(id);
      }
    }
    stats = loop.stats();
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
    std::vector<Submission> arrived;
    std::vector<RequestId> gone;
    for (;;) {
      bool stop = false;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stopping || !submitted.empty() || !cancelled.empty() || !loop.idle(); });
        stop = stopping;
        if (stop && submitted.empty() && loop.idle()) return;
        arrived.swap(submitted);
        gone.swap(cancelled);
      }
      for (Submission& s : arrived) loop.add(s.request, s.prompt);
      for (const RequestId id : gone) loop.cancel(id);
      arrived.clear();
      gone.clear();
      if (stop) {
        loop.end_all(FinishReason::kCancelled);
      } else {
        loop.step();
      }
      const EngineStats now = loop.stats();
      const std::lock_guard lock(stats_mutex);
      stats = now;
    }
  }
};

namespace {

void check_ids(std::span<const TokenId> ids, int vocab_size, std::string_view of) {
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size)
      throw invalid("token id {} of {} is outside the vocabulary of {}", id, of, vocab_size);
  }
}

}  // namespace

Engine::Engine(const EngineOptions& options) : state_(std::make_unique<State>(options)) {}
Engine::~Engine() = default;

RequestId Engine::submit(Request request, Callback callback) {
  State& s = *state_;
  const ModelInfo& model = s.model.info;
  validate(request.sampling, model.vocab_size);
  if (request.prompt.empty()) throw invalid("the prompt has no tokens");
  const bool answers = request.pooling == Pooling::kNone && request.sampling.max_tokens != 0;
  if (std::cmp_greater(request.prompt.size() + (answers ? 1 : 0), model.max_model_len)) {
    throw invalid("the prompt has {} tokens; {} fit{} (--max-model-len {})", request.prompt.size(),
                  model.max_model_len - (answers ? 1 : 0), answers ? " with at least one for the answer" : "",
                  model.max_model_len);
  }
  check_ids(request.prompt, model.vocab_size, "the prompt");
  if (request.banned_runs) {
    for (const TokenIds& run : *request.banned_runs) {
      if (run.empty()) throw invalid("a run of banned_runs has no tokens");
      check_ids(run, model.vocab_size, "banned_runs");
    }
  }
  if (!request.sampling.stop.empty() && !s.tokenizer())
    throw unsupported("stop strings need a vocabulary, which this model does not have");
  if (!request.sampling.bad_words.empty() && !s.tokenizer())
    throw unsupported("bad words need a vocabulary, which this model does not have");
  if (request.pooling != Pooling::kNone && (request.sampling.n != 1 || request.sampling.prompt_logprobs))
    throw invalid("a request for a vector has no answers: n must be 1, and prompt_logprobs unset");
  if (!(request.timeout >= 0)) throw invalid("timeout is {}: seconds, or 0 for none", request.timeout);
  auto state = std::make_shared<RequestState>();
  state->id = s.next_request++;
  state->prompt_tokens = static_cast<int>(request.prompt.size());
  state->max_new_tokens =
      std::min(request.sampling.max_tokens.value_or(model.max_model_len), model.max_model_len - state->prompt_tokens);
  state->banned_early = s.end_tokens;
  state->banned_early.insert(state->banned_early.end(), request.sampling.stop_token_ids.begin(),
                             request.sampling.stop_token_ids.end());
  state->banned_runs = std::move(request.banned_runs);
  if (!request.sampling.bad_words.empty()) state->banned_runs = spellings(request.sampling.bad_words);
  if (!request.sampling.ignore_eos) state->end_tokens = s.end_tokens;
  state->stops = prepare_stops(std::exchange(request.sampling.stop, {}));
  state->sampling = std::move(request.sampling);
  state->callback = std::move(callback);
  state->pooling = request.pooling;
  state->tenant = std::move(request.tenant);
  state->cache_salt = std::move(request.cache_salt);
  state->priority = request.priority;
  state->submitted = Clock::now();
  if (request.timeout > 0 && request.timeout < 1e9) {
    state->deadline =
        state->submitted + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.timeout));
  }
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
    try {
      callback(out);
    } catch (const std::bad_alloc&) {
      if (out.finish != FinishReason::kError) throw;  // it ends with that, which is the last there is to tell
    }
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
  for (const auto& [name, value] : state_->template_kwargs.items()) {
    if (!input.kwargs.contains(name)) input.kwargs[name] = value;
  }
  return chat_template()->render(input);
}

TokenIds Engine::encode_chat(ChatInput input) const {
  return tokenizer().encode(render(std::move(input)), {.add_special = false, .parse_special = true});
}

TokenRuns Engine::spellings(const std::vector<std::string>& words) const {
  auto all = std::make_shared<std::vector<TokenIds>>();
  for (const std::string& word : words) {
    const std::string bare = word.substr(std::min(word.find_first_not_of(' '), word.size()));
    for (const std::string& text : {bare, " " + bare}) {
      TokenIds ids = tokenizer().encode(text);
      if (!ids.empty()) all->push_back(std::move(ids));
    }
  }
  return all;
}

}  // namespace quire
