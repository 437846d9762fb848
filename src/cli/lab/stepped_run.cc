#include "cli/lab/stepped_run.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

// Submits requests from callbacks, which run between two steps, and collects the answers. Its members are used by the engine's
// thread, but for what `mutex` guards.
class StepSubmitter : public std::enable_shared_from_this<StepSubmitter> {
 public:
  StepSubmitter(Engine& engine, const std::vector<SteppedRequest>& requests)
      : engine_(engine), requests_(requests), left_(requests.size() + 1), answers_(requests.size()) {}

  // The first request has one token, so it takes one step.
  void begin() {
    engine_.submit(greedy_request(random_prompt(engine_, 1, 0), 1), [self = shared_from_this()](const Output& out) {
      if (out.finish == FinishReason::kNone) return;
      self->submit_due(0);
      self->end_one(out);
    });
  }
  // Until all answers have ended. Throws Error if one failed.
  std::vector<TokenIds> wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return left_ == 0; });
    if (!error_.empty()) throw invalid("a request failed: {}", error_);
    return std::move(answers_);
  }

 private:
  void submit_due(size_t tokens) {
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (!std::cmp_equal(requests_[i].after, tokens)) continue;
      try {
        engine_.submit(requests_[i].request, [self = shared_from_this(), i](const Output& out) { self->note(i, out); });
      } catch (const Error& e) {  // callbacks must not throw it
        end_one({.finish = FinishReason::kError, .error = e.what()});
      }
    }
  }
  void note(size_t index, const Output& out) {
    for (const OutputToken& token : out.tokens) {
      answers_[index].push_back(token.id);
      if (index == 0) submit_due(answers_[0].size());
    }
    if (out.finish == FinishReason::kNone) return;
    // If the first one has failed, those that wait for its tokens fail with it.
    for (const SteppedRequest& other : requests_) {
      if (index == 0 && std::cmp_greater(other.after, answers_[0].size())) end_one(out);
    }
    end_one(out);  // the last use of the members: wait() may return
  }
  void end_one(const Output& last) {
    const std::lock_guard lock(mutex_);
    if (last.finish != FinishReason::kStop && last.finish != FinishReason::kLength)
      error_ = last.error.empty() ? std::string(name(last.finish)) : last.error;
    if (--left_ == 0) ended_.notify_one();
  }

  Engine& engine_;
  const std::vector<SteppedRequest>& requests_;
  std::mutex mutex_;
  std::condition_variable ended_;
  size_t left_;
  std::string error_;
  std::vector<TokenIds> answers_;
};

// A snapshot with step `last`. The engine publishes one when asked, at most every 50 ms.
EngineSnapshot snapshot_of(const Engine& engine, uint64_t last) {
  for (;;) {
    EngineSnapshot snapshot = engine.snapshot();
    if (!snapshot.steps.empty() && snapshot.steps.back().number >= last) return snapshot;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

SteppedRun run_stepped(Engine& engine, const std::vector<SteppedRequest>& requests) {
  const EngineStats before = engine.stats();
  const auto submitter = std::make_shared<StepSubmitter>(engine, requests);
  submitter->begin();
  SteppedRun run;
  run.answers = submitter->wait();
  // The engine counts a step after it has told the clients.
  EngineStats after = engine.stats();
  while (after.finished_requests < before.finished_requests + 1 + requests.size()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    after = engine.stats();
  }
  assert(after.steps - before.steps <= 1 + kMostSteppedSteps);
  const EngineSnapshot snapshot = snapshot_of(engine, after.steps);
  for (const StepSnapshot& step : snapshot.steps) {
    if (step.number <= before.steps + 1) continue;
    const auto parts = std::span(snapshot.parts).subspan(step.first_part, step.parts);
    run.steps.push_back({.seconds = step.duration, .parts = {parts.begin(), parts.end()}});
    run.seconds += step.duration;
    for (const StepPart& part : parts) run.sequences.push_back(part.sequence);
  }
  std::ranges::sort(run.sequences);  // they are numbered as they are submitted
  run.sequences.erase(std::unique(run.sequences.begin(), run.sequences.end()), run.sequences.end());
  assert(run.sequences.size() == requests.size());
  return run;
}

TokenIds random_prompt(const Engine& engine, int tokens, uint64_t seed) {
  // Of byte-level vocabularies the first 256 tokens are bytes; of others, the first few are special.
  const int vocab = engine.info().vocab_size, first = std::min(vocab - 1, 32);
  std::mt19937_64 random(seed);
  TokenIds ids;
  for (int i = 0; i < tokens; ++i)
    ids.push_back(first + static_cast<TokenId>(random() % static_cast<uint64_t>(vocab - first)));
  return ids;
}

Request greedy_request(TokenIds prompt, int answer) {
  Request request{.prompt = std::move(prompt)};
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = answer;
  return request;
}

}  // namespace quire
