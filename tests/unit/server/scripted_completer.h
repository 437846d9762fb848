// A scripted zero-time model: answers come from a thread of its own, as fast as they are taken or when a test says so.
//
// Tokens are characters: the prompt's token ids are its bytes, and an answer repeats `answer`, a token a character.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "grammar/compose.h"
#include "json/parse.h"
#include "server/api/completer.h"
#include "text/message_roles.h"

namespace quire {

class ScriptedCompleter final : public Completer, public ServedText {
 public:
  std::string answer = "Hello";  // its characters are the tokens, then the answer ends with kStop
  bool endless = false;          // repeats the answer until max_tokens or cancel
  std::atomic<std::chrono::microseconds> token_time{std::chrono::microseconds{0}};  // between tokens of a choice
  int cached_tokens = 0;                                                            // for every prompt
  int fail_at_token = -1;  // instead of this token the answer ends with `failure`
  FinishReason failure = FinishReason::kError;
  std::string chat_template;  // its source, from which the parsers are chosen; set it before the server starts
  bool renders = false;  // prompts are what chat_template makes of the messages, as an engine's are; else their texts
  bool infills = false;  // whether it can fill in the middle
  bool takes_adapters = false;
  std::function<void(const Request&)> on_submit;  // may throw
  std::function<void(std::string_view)> on_encode;
  std::function<void()> on_token_bytes;  // may throw
  // The result for a request with pooling.
  std::function<std::vector<float>(const Request&)> pooled = [](const Request& r) {
    return std::vector<float>{3.0f, r.pooling == Pooling::kLast ? -4.0f : 4.0f};
  };
  std::function<EngineSnapshot()> on_snapshot = [] { return EngineSnapshot{}; };
  std::function<Explanation(const ExplainRequest&)> on_explain;  // may throw
  std::function<void()> on_measure;                              // may throw
  mutable std::atomic<int> spelled{0};                           // calls of spellings()

  ScriptedCompleter() {
    info_.name = "scripted";
    info_.vocab_size = 256;
    info_.hidden = info_.embedding_size = 2;
    info_.max_model_len = 100'000;
    info_.kv_cache_dtype = "int8";
    info_.page_tokens = 16;
    info_.kv_pages = 64;
    info_.max_adapters = 3;
    info_.kv_bytes_per_token = 1088;
    thread_ = std::thread([this] { run(); });
  }

  ~ScriptedCompleter() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  RequestId submit(Request request, Engine::Callback callback) override {
    if (on_submit) on_submit(request);
    const std::lock_guard lock(mutex_);
    const RequestId id{++submitted_};
    last_request_ = request;
    waiting_.push_back({id, std::move(request), std::move(callback)});
    changed_.notify_all();
    return id;
  }

  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    ++cancels_;
    cancelled_.push_back(id);
    changed_.notify_all();
  }

  std::vector<AdapterInfo> adapters() const override { return locked(adapters_); }
  void add_adapter(const AdapterOption& adapter) override {
    if (!takes_adapters) throw unsupported("this model takes no adapters");
    const std::lock_guard lock(mutex_);
    adapters_.push_back({.name = adapter.name, .path = adapter.path});
  }

  const ModelInfo& info() const override { return info_; }
  ModelInfo& change_info() { return info_; }  // before the server starts
  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats stats;
    stats.running = static_cast<int>(running_);
    stats.kv_pages = 4;
    stats.kv_pages_used = 1;
    stats.preemptions = 3;
    stats.prefix_query_tokens = 40;
    stats.prefix_hit_tokens = 30;
    stats.store_dropped = 4;
    stats.store_write_failures = 5;
    stats.store_damaged = 6;
    stats.decode_seconds = 1.5;
    stats.decode_bytes = 6e9;
    DrafterStats& drafter = stats.drafters.emplace_back();
    drafter.name = "ngram";
    drafter.count(2, 1);
    drafter.count(1, 1);
    drafter.seconds = 0.25;
    drafter.errors = 7;
    return stats;
  }
  EngineSnapshot snapshot() const override { return on_snapshot(); }
  Explanation explain(const ExplainRequest& request) const override {
    return on_explain ? on_explain(request) : Explanation{};
  }
  double read_bandwidth() const override { return 1e10; }
  double measure_multiply_rate() const override {
    if (on_measure) on_measure();
    return 3e11;
  }
  const ServedText& text() const override { return *this; }
  nlohmann::ordered_json tokenizer_info() const override { return {{"vocab_size", info_.vocab_size}}; }
  TokenIds encode_chat(ChatInput input) const override { return encode(render_chat(std::move(input)), {}); }
  std::string render_chat(ChatInput input) const override {
    if (!renders) return joined_contents(input);
    const auto chat = ChatTemplate::parse(chat_template, "template");
    const auto render = [&](ChatInput given) {
      given.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
      return chat.render(given);
    };
    fit_chat(input, find_message_roles(chat_template, render));
    return render(input);
  }
  std::string chat_template_source() const override { return chat_template; }
  bool is_added_token(std::string_view) const override { return false; }
  TokenRuns spellings(const std::vector<std::string>& words) const override {
    ++spelled;
    auto runs = std::make_shared<std::vector<TokenIds>>();
    for (const std::string& word : words) runs->push_back(encode(word, {}));
    return runs;
  }
  // The scripted answer does not follow it.
  Constraint compile(const ConstraintSource& source) const override { return grammar::compile(source); }
  TokenIds encode(std::string_view text, EncodeOptions) const override {
    if (on_encode) on_encode(text);
    TokenIds ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  // The texts with a bar between them.
  TokenPair encode_pair(std::string_view query, std::string_view document, size_t most) const override {
    TokenIds ids = encode(std::string(query) + '|' + std::string(document), {});
    if (most > 0 && ids.size() > most) ids.resize(most);
    return {std::move(ids), query.size() + 1};
  }
  bool can_infill() const override { return infills; }
  TokenIds encode_infill(const InfillInput& input) const override {
    std::string text;
    for (const InfillFile& file : input.files) text += file.name + ':' + file.text + '|';
    return encode(text + '<' + input.prefix + '_' + input.suffix + '>', {});
  }
  TokenIds infill_ends() const override { return {'$'}; }
  std::string decode(const TokenIds& ids) const override {
    std::string text;
    for (const TokenId id : ids) text += static_cast<char>(id);
    return text;
  }
  std::string token_text(TokenId id) const override { return token_bytes(id); }
  std::string token_bytes(TokenId id) const override {
    if (on_token_bytes) on_token_bytes();
    return std::string(1, static_cast<char>(id));
  }

  uint64_t submitted() const { return locked(submitted_); }
  int cancels() const { return locked(cancels_); }
  size_t running() const { return locked(running_); }
  uint64_t generated() const { return locked(generated_); }
  SamplingParams last_sampling() const { return last_request().sampling; }
  Request last_request() const {
    const std::lock_guard lock(mutex_);
    return last_request_;
  }

 private:
  struct Work {
    RequestId id;
    Request request;
    Engine::Callback callback;
    std::vector<int> done = {};  // tokens of each choice
    std::vector<bool> ended = {};
    std::vector<std::unique_ptr<StopFinder>> stops = {};  // one for each choice, if the request brings them
    std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  };

  static std::string joined_contents(const ChatInput& input) {
    std::string prompt;
    for (const auto& message : input.messages) {
      if (message["content"] == "refuse") throw TemplateError("roles must alternate");
      prompt += message["content"].get<std::string>();
    }
    return prompt;
  }

  template <class T>
  T locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  void run() {
    std::deque<Work> work;
    for (;;) {
      std::vector<RequestId> cancelled;
      {
        std::unique_lock lock(mutex_);
        running_ = work.size();
        changed_.wait(lock, [&] { return stopping_ || !waiting_.empty() || !work.empty(); });
        if (stopping_) break;
        while (!waiting_.empty()) {
          work.push_back(std::move(waiting_.front()));
          waiting_.pop_front();
          work.back().done.resize(static_cast<size_t>(work.back().request.sampling.n));
          work.back().ended.resize(work.back().done.size());
          for (size_t i = 0; work.back().request.stop_finder && i < work.back().done.size(); ++i) {
            work.back().stops.push_back(work.back().request.stop_finder());
          }
        }
        running_ = work.size();
        cancelled.swap(cancelled_);
      }
      for (Work& w : work) {
        const bool cancel = std::find(cancelled.begin(), cancelled.end(), w.id) != cancelled.end();
        for (size_t choice = 0; choice < w.done.size(); ++choice) {
          if (!w.ended[choice]) step(w, choice, cancel);
        }
      }
      std::erase_if(work, [](const Work& w) { return std::ranges::all_of(w.ended, [](bool e) { return e; }); });
      if (const auto time = token_time.load(); time.count() > 0) std::this_thread::sleep_for(time);
    }
    for (Work& w : work) {
      for (size_t choice = 0; choice < w.done.size(); ++choice) {
        if (!w.ended[choice]) step(w, choice, true);
      }
    }
  }

  // Token i of the prompt has log-probability -i, and the best one a half more.
  static std::vector<OutputToken> scored(const TokenIds& prompt, int tops) {
    std::vector<OutputToken> tokens;
    for (const TokenId id : prompt) {
      OutputToken& token = tokens.emplace_back();
      token.id = id;
      token.logprob = -static_cast<float>(tokens.size() - 1);
      for (int i = 0; i < tops; ++i) token.top_logprobs.emplace_back(id + 1 + i, token.logprob + 0.5f);
    }
    return tokens;
  }

  // As the engine does it. Stop strings of requests without a finder are not looked for.
  static void find_stop(StopFinder& finder, const SamplingParams& sampling, int done, Output& output) {
    auto which = finder.add(output.text, done >= sampling.min_tokens);
    if (!which && output.finish != FinishReason::kNone) which = finder.end(output.finish == FinishReason::kStop);
    if (!which) return;
    output.finish = FinishReason::kStop;
    output.stop_reason = sampling.stop.at(*which);
  }

  void step(Work& w, size_t choice, bool cancel) {
    const SamplingParams& sampling = w.request.sampling;
    Output output;
    output.choice = static_cast<int>(choice);
    int& done = w.done[choice];
    if (cancel) {
      output.finish = FinishReason::kCancelled;
    } else if (done == fail_at_token) {
      output.finish = failure;
      output.error = "the script failed";
    } else if (w.request.pooling != Pooling::kNone) {
      output.embedding = pooled(w.request);
      output.finish = FinishReason::kStop;
    } else if (sampling.max_tokens == 0) {
      output.finish = FinishReason::kLength;
    } else {
      const char c = answer[static_cast<size_t>(done) % answer.size()];
      output.text = std::string(1, c);
      OutputToken token;
      token.id = static_cast<unsigned char>(c);
      if (sampling.logprobs) {
        token.logprob = -0.5f;
        for (int i = 0; i < *sampling.logprobs; ++i)
          token.top_logprobs.emplace_back(token.id + i, -0.5f - static_cast<float>(i));
      }
      output.tokens.push_back(std::move(token));
      ++done;
      if (sampling.max_tokens && done >= *sampling.max_tokens) {
        output.finish = FinishReason::kLength;
      } else if (!endless && done >= static_cast<int>(answer.size())) {
        output.finish = FinishReason::kStop;
      }
      if (!w.stops.empty()) find_stop(*w.stops[choice], sampling, done, output);
      const std::lock_guard lock(mutex_);
      ++generated_;
    }
    if (sampling.prompt_logprobs && choice == 0 && done <= 1) {
      output.prompt_logprobs = scored(w.request.prompt, *sampling.prompt_logprobs);
    }
    if (output.finish != FinishReason::kNone) {
      w.ended[choice] = true;
      output.usage = {.prompt_tokens = static_cast<int>(w.request.prompt.size()),
                      .cached_tokens = cached_tokens,
                      .completion_tokens = done,
                      .ttft_seconds = 0.001,
                      .seconds = 0.002,
                      .queue_seconds = 0.0005};
    }
    try {
      w.callback(output);
    } catch (const std::bad_alloc&) {  // as the engine does it: the choice ends, with another call
      Output failed;
      failed.choice = output.choice;
      failed.finish = FinishReason::kError;
      w.ended[choice] = true;
      w.callback(failed);
    }
  }

  ModelInfo info_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> waiting_;
  std::vector<RequestId> cancelled_;
  Request last_request_;
  std::vector<AdapterInfo> adapters_;
  uint64_t submitted_ = 0, generated_ = 0;
  int cancels_ = 0;
  size_t running_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quire
