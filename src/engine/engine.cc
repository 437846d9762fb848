#include "quire/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/signals.h"
#include "engine/constraint_compiler.h"
#include "engine/engine_loop.h"
#include "engine/explain/explain.h"
#include "engine/pool_stage.h"
#include "engine/remote/executor_process.h"
#include "engine/request_state.h"
#include "engine/watch/snapshot.h"
#include "json/parse.h"
#include "text/chat_prompt.h"
#include "text/hidden_parts.h"
#include "text/message_roles.h"
#include "text/rerank_prompt.h"

namespace quire {

std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kTimeout:
      return "timeout";
    case FinishReason::kDeadEnd:
      return "dead_end";
    case FinishReason::kRefused:
      return "refused";
    case FinishReason::kError:
      return "error";
    case FinishReason::kLost:
      return "lost";
  }
  return "none";
}

namespace {

// How often an idle engine asks the other processes whether they are there.
constexpr std::chrono::milliseconds kBeatPeriod{500};

// For tests, the environment asks for it, too.
std::unique_ptr<ExecutorProcess> executor_process(const EngineOptions& o) {
  if (o.processes) return nullptr;
  if (!o.executor_process && std::getenv("QUIRE_EXECUTOR_PROCESS") == nullptr) return nullptr;
  return std::make_unique<ExecutorProcess>(o);
}

}  // namespace

struct Engine::State {
  std::unique_ptr<ExecutorProcess> process;  // nullptr: this one computes
  LoadedModel model;
  Json template_kwargs = Json::object();
  MessageRoles message_roles;
  TokenIds end_tokens;
  std::optional<ConstraintCompiler> constraints;
  EngineLoop loop;  // used by `thread` alone

  // Messages to the engine's thread.
  std::mutex mutex;
  std::condition_variable wake;
  Sequences submitted;
  std::vector<RequestId> cancelled;
  bool stopping = false;
  uint64_t last_request = 0;

  std::mutex explaining;  // held by a call of explain()

  mutable std::mutex stats_mutex;
  EngineStats stats;
  std::thread thread;

  State(const EngineOptions& o, std::shared_ptr<Runtime> runtime)
      : process(executor_process(o)),
        model(o, 0, std::move(runtime)),
        end_tokens(model.target.config.eos),
        loop(connected()) {
    if (!o.chat_template_kwargs.empty()) {
      template_kwargs = parse_json(o.chat_template_kwargs, "--chat-template-kwargs");
      if (!template_kwargs.is_object())
        throw invalid("--chat-template-kwargs must be a JSON object, not {}", o.chat_template_kwargs);
    }
    if (model.chat_template) {
      message_roles = find_message_roles(model.chat_template->source(), [this](ChatInput chat) {
        return model.chat_template->render(with_defaults(std::move(chat)));
      });
    }
    if (model.target.text.tokenizer) {
      for (const TokenId id : model.target.text.tokenizer->end_of_generation()) {
        if (std::find(end_tokens.begin(), end_tokens.end(), id) == end_tokens.end()) end_tokens.push_back(id);
      }
    }
    constraints.emplace(tokenizer(), model.target.config.vocab, end_tokens, o.constraint_bytes);
    loop.write_stats(stats);
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
    if (model.options.page_observer) model.options.page_observer->cleared();
  }

  LoadedModel& connected() {
    if (process) model.compute_by(process->connect(model));
    return model;
  }

  ChatInput with_defaults(ChatInput input) const {
    for (const auto& [name, token] : model.target.text.special_tokens.items()) {
      if (!input.special_tokens.contains(name)) input.special_tokens[name] = token;
    }
    for (const auto& [name, value] : template_kwargs.items()) {
      if (!input.kwargs.contains(name)) input.kwargs[name] = value;
    }
    return input;
  }

  // As the template takes it.
  ChatInput fitted(ChatInput input) const {
    if (!model.chat_template) throw unsupported("{} has no chat template; use plain completions", model.info.name);
    ChatInput whole = with_defaults(std::move(input));
    fit_chat(whole, message_roles);
    return whole;
  }

  const Tokenizer* tokenizer() const { return model.target.text.tokenizer ? &*model.target.text.tokenizer : nullptr; }

  void run() {
    std::vector<RequestId> unwanted;
    for (;;) {
      Sequences arrived;
      bool stop = false;
      {
        std::unique_lock lock(mutex);
        const auto ready = [&] {
          return stopping || !submitted.empty() || !cancelled.empty() || !loop.idle() || loop.watch().asked();
        };
        if (!model.processes) {
          wake.wait(lock, ready);
        } else {
          while (!wake.wait_for(lock, kBeatPeriod, ready)) {
            lock.unlock();
            loop.beat();
            lock.lock();
          }
        }
        stop = stopping;
        if (stop && submitted.empty() && loop.idle()) return;
        arrived.swap(submitted);
        unwanted.swap(cancelled);
      }
      loop.add(std::move(arrived));
      loop.cancel(unwanted);
      unwanted.clear();
      if (stop) {
        loop.end_all(FinishReason::kCancelled);
      } else {
        if (model.runtime.team.taken()) loop.catch_up();  // by another engine of the runtime: they take turns
        const Team::Turn turn(model.runtime.team);
        loop.step();
      }
      {
        const std::lock_guard lock(stats_mutex);
        loop.write_stats(stats);
      }
      loop.publish(stats);
    }
  }
};

namespace {

void check_ids(std::span<const TokenId> ids, int vocab_size, std::string_view of) {
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size)
      throw invalid("token id {} of {} is outside the vocabulary (0 to {})", id, of, vocab_size - 1);
  }
}

void check(const ThoughtBudget& budget, bool frame_tokens, const ModelInfo& model) {
  if (budget.tokens < 0) throw invalid("a thought of {} tokens is impossible", budget.tokens);
  if (budget.open.empty() || budget.close.empty() || budget.closing.empty() || !frame_tokens)
    throw invalid("thought_budget needs the marks of a thought, the tokens that close it, and frame_tokens");
  check_ids(budget.closing, model.vocab_size, "thought_budget");
}

// Throws Error if the request can never run.
void check(const Request& r, const ModelInfo& model, bool has_tokenizer) {
  validate(r.sampling, model.vocab_size);
  if (r.prompt.empty()) throw invalid("the prompt has no tokens");
  if (const int most = longest_prompt(r, model); std::cmp_greater(r.prompt.size(), most)) {
    throw invalid("the prompt has {} tokens; at most {} fit (--max-model-len {})", r.prompt.size(), most,
                  model.max_model_len);
  }
  check_ids(r.prompt, model.vocab_size, "the prompt");
  if (r.banned_runs) {
    for (const TokenIds& run : *r.banned_runs) {
      if (run.empty()) throw invalid("a run in banned_runs has no tokens");
      check_ids(run, model.vocab_size, "banned_runs");
    }
  }
  if (!r.sampling.stop.empty() && !has_tokenizer)
    throw unsupported("stop strings need a vocabulary, which this model does not have");
  if (!r.sampling.bad_words.empty() && !has_tokenizer)
    throw unsupported("bad words need a vocabulary, which this model does not have");
  if (r.sampling.dry_multiplier != 0 && !r.sampling.dry_sequence_breakers.empty() && !has_tokenizer)
    throw unsupported("dry_sequence_breakers need a vocabulary, which this model does not have; set none");
  if (wants_answer(r) && !model.generates)
    throw unsupported("{} does not generate text; it can only embed or score it", model.name);
  if (keeps_logits(r) && !model.generates)
    throw unsupported("{} has no logits; it can only embed or score text", model.name);
  if (r.pooling != Pooling::kNone && r.array != PromptArray::kNone)
    throw invalid("a request takes an embedding or an array of its prompt, not both");
  if (!wants_answer(r) && (r.sampling.n != 1 || r.sampling.prompt_logprobs))
    throw invalid("a request for an embedding has no answers: n must be 1 and prompt_logprobs unset");
  if (r.constraint && !wants_answer(r)) throw invalid("a request for an embedding has no answer to constrain");
  if (r.thought_budget) check(*r.thought_budget, r.frame_tokens, model);
  if (r.constraint && r.sampling.ignore_eos)
    throw invalid("ignore_eos cannot be combined with structured output, which ends where it is complete");
  if (!(r.timeout >= 0)) throw invalid("timeout is {}: it must be a number of seconds, or 0 for none", r.timeout);
}

void prepare_dry(RequestState& r, const Tokenizer& tokenizer) {
  if (r.sampling.dry_multiplier == 0 || r.sampling.dry_sequence_breakers.empty()) return;
  r.dry_breakers = {prepare_stops(std::exchange(r.sampling.dry_sequence_breakers, {})),
                    [&tokenizer](TokenId token) { return tokenizer.token_bytes(token); }};
  r.dry_run.emplace(r.dry_breakers);
  for (const TokenId token : r.prompt) r.dry_run->push(token);
}

}  // namespace

void DrafterStats::count(int tokens, int right) {
  for (int i = 0; i < tokens; ++i) {
    ++drafted[static_cast<size_t>(i)];
    if (i < right) ++accepted[static_cast<size_t>(i)];
  }
  if (right == tokens) ++complete;
}

int longest_prompt(const Request& request, const ModelInfo& model) {
  const bool answers = wants_answer(request) && request.sampling.max_tokens != 0;
  return model.max_model_len - (answers ? 1 : 0);
}

std::shared_ptr<Runtime> make_runtime(const EngineOptions& options) { return std::make_shared<Runtime>(options); }

Engine::Engine(const EngineOptions& options, std::shared_ptr<Runtime> runtime)
    : state_(std::make_unique<State>(options, std::move(runtime))) {}
Engine::~Engine() = default;

RequestId Engine::submit(Request request, Callback callback) {
  State& s = *state_;
  check(request, info(), s.tokenizer() != nullptr);
  if (!request.sampling.bad_words.empty()) request.banned_runs = spellings(request.sampling.bad_words);
  const auto state = prepare(std::move(request), std::move(callback), s.end_tokens, info().max_model_len);
  reserve_pooled(*state, info().hidden, info().vocab_size);
  if (!state->adapter.empty()) state->adapter_lease = s.model.adapters.find(state->adapter);
  state->rope_variant = rope_variant(s.model.target.config.ropes, state->prompt_tokens);
  if (s.tokenizer()) prepare_dry(*state, *s.tokenizer());
  if (state->constraint) state->matcher.emplace(s.constraints->vocabulary(), state->constraint);
  Sequences one;
  one.emplace_back(state, 0, std::move(state->prompt), s.tokenizer());
  RequestId id{};
  {
    const std::lock_guard lock(s.mutex);
    id = state->id = RequestId{++s.last_request};
    s.submitted.splice(s.submitted.end(), one);
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
      if (out.finish != FinishReason::kError) throw;  // the engine ends the choice with kError; that output must count
    }
    if (out.finish == FinishReason::kNone) return;
    const std::lock_guard lock(mutex);
    if (--left == 0) done.notify_one();
  });
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return left == 0; });
}

void Engine::add_adapter(const AdapterOption& adapter) {
  LoadedModel& model = state_->model;
  const Team::Turn turn(model.runtime.team);  // no step runs
  model.add_adapter(adapter);
}
void Engine::remove_adapter(std::string_view name) { state_->model.adapters.remove(name); }
std::vector<AdapterInfo> Engine::adapters() const { return state_->model.adapters.list(); }

const ModelInfo& Engine::info() const { return state_->model.info; }

const MemoryPlan& Engine::memory_plan() const { return state_->model.plan; }

EngineStats Engine::stats() const {
  EngineStats stats;
  {
    const std::lock_guard lock(state_->stats_mutex);
    stats = state_->stats;
  }
  state_->loop.write_store_stats(stats);  // the store reads and writes between steps, too
  return stats;
}

EngineSnapshot Engine::snapshot() const {
  EngineSnapshot newest = state_->loop.watch().latest();  // before the next one is asked for, which may come at once
  {
    const std::lock_guard lock(state_->mutex);
    state_->loop.watch().ask();
  }
  state_->wake.notify_one();
  return newest;
}

Explanation Engine::explain(const ExplainRequest& request) const {
  const std::unique_lock one(state_->explaining, std::try_to_lock);
  if (!one) throw no_resource("another text is being explained; try again when it is done");
  if (!state_->model.has_all_layers())
    throw unsupported(
        "texts cannot be explained while several processes, several devices, or the CPU and a device share the layers");
  return quire::explain(state_->model, request);
}

const Tokenizer& Engine::tokenizer() const {
  if (!state_->tokenizer()) throw unsupported("{} has no vocabulary", info().name);
  return *state_->tokenizer();
}

const ChatTemplate* Engine::chat_template() const {
  return state_->model.chat_template ? &*state_->model.chat_template : nullptr;
}

std::string Engine::render(ChatInput input) const {
  const ChatInput whole = state_->fitted(std::move(input));
  return chat_template()->render(whole);
}

TokenIds Engine::encode_chat(ChatInput input) const {
  const ChatInput whole = state_->fitted(std::move(input));
  return encode_chat_prompt(*chat_template(), tokenizer(), whole);
}

void Engine::require_shown(const ChatInput& input) const {
  quire::require_shown(input, [this](ChatInput chat) { return render(std::move(chat)); });
}

TokenPair Engine::encode_pair(std::string_view query, std::string_view document, size_t most_tokens) const {
  const auto& pattern = state_->model.target.text.rerank_template;
  if (!pattern) return tokenizer().encode_pair(query, document, most_tokens);
  TokenIds ids = encode_rerank_prompt(tokenizer(), *pattern, query, document, most_tokens);
  const size_t size = ids.size();
  return {std::move(ids), size};
}

TokenIds Engine::encode(std::string_view text) const { return tokenizer().encode(text, {.add_special = true}); }

std::string Engine::decode(std::span<const TokenId> ids) const { return tokenizer().decode(ids); }

TokenIds Engine::encode_messages(std::string_view messages) const {
  ChatInput chat{.messages = parse_json(messages, "messages", {.replace_surrogates = true})};
  require_shown(chat);
  return encode_chat(std::move(chat));
}

Constraint Engine::compile(const ConstraintSource& source) const { return state_->constraints->compile(source); }

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
