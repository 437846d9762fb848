#include "cli/measure/request_run.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace quire {
namespace {

using RunClock = std::chrono::steady_clock;

// What callbacks on the engine's thread and the caller share. It outlives the run if the engine does not call back in time.
struct RunState {
  const RunClock::time_point start = RunClock::now();
  std::mutex mutex;
  std::condition_variable ended;
  std::vector<TimedAnswer> answers;
  std::vector<RequestId> ids;  // of those submitted
  size_t running = 0;

  double now() const { return std::chrono::duration<double>(RunClock::now() - start).count(); }
  RunClock::time_point time_of(double seconds) const {
    return start + std::chrono::duration_cast<RunClock::duration>(std::chrono::duration<double>(seconds));
  }
};

void note_output(RunState& state, size_t index, const Output& out) {
  const double now = state.now();
  const std::lock_guard lock(state.mutex);
  TimedAnswer& answer = state.answers[index];
  for (const OutputToken& token : out.tokens) {
    answer.tokens.push_back(token.id);
    answer.token_times.push_back(now);
  }
  if (out.finish == FinishReason::kNone) return;
  answer.finish = out.finish;
  answer.error = out.error;
  answer.usage = out.usage;
  answer.ended = now;
  --state.running;
  state.ended.notify_one();
}

class RequestRun {
 public:
  RequestRun(Engine& engine, const std::vector<ScheduledRequest>& requests, const RunLoop& loop)
      : engine_(engine), requests_(requests), loop_(loop), state_(std::make_shared<RunState>()) {
    state_->answers.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      assert(requests[i].request.sampling.n == 1);
      // So that callbacks, which run between steps, do not allocate.
      const auto most = static_cast<size_t>(requests[i].request.sampling.max_tokens.value_or(0));
      state_->answers[i].tokens.reserve(most);
      state_->answers[i].token_times.reserve(most);
    }
  }

  TimedRun run() {
    try {
      for (size_t next = 0; next < requests_.size() && wait_for_turn(next); ++next) submit(next);
    } catch (...) {
      end(true);
      throw;
    }
    end(false);
    TimedRun result{.answers = std::move(state_->answers), .seconds = 0};
    for (const TimedAnswer& answer : result.answers) result.seconds = std::max(result.seconds, answer.ended);
    return result;
  }

 private:
  RunClock::time_point deadline() const {
    return loop_.longest > 0 ? state_->time_of(loop_.longest) : RunClock::time_point::max();
  }

  // False: the run ends before.
  bool wait_for_turn(size_t next) {
    std::unique_lock lock(state_->mutex);
    TimedAnswer& answer = state_->answers[next];
    const auto never = [] { return false; };
    if (loop_.concurrency == 0) {
      answer.due = requests_[next].at;
      state_->ended.wait_until(lock, std::min(state_->time_of(answer.due), deadline()), never);
    } else {
      const auto free = [&] { return std::cmp_less(state_->running, loop_.concurrency); };
      if (!wait(lock, free)) return false;
      answer.due = state_->now();
    }
    return RunClock::now() < deadline();
  }

  // False: the deadline came first.
  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    if (loop_.longest > 0) return state_->ended.wait_until(lock, deadline(), condition);
    state_->ended.wait(lock, condition);
    return true;
  }

  void submit(size_t index) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->answers[index].submitted = state_->now();
      ++state_->running;
    }
    try {
      const auto note = [state = state_, index](const Output& out) { note_output(*state, index, out); };
      state_->ids.push_back(engine_.submit(requests_[index].request, note));
    } catch (...) {
      const std::lock_guard lock(state_->mutex);
      --state_->running;
      throw;
    }
  }

  void end(bool at_once) {
    std::unique_lock lock(state_->mutex);
    const auto idle = [&] { return state_->running == 0; };
    if (!at_once && wait(lock, idle)) return;
    lock.unlock();
    for (const RequestId id : state_->ids) engine_.cancel(id);
    lock.lock();
    state_->ended.wait(lock, idle);
  }

  Engine& engine_;
  const std::vector<ScheduledRequest>& requests_;
  const RunLoop loop_;
  const std::shared_ptr<RunState> state_;
};

bool meets(double seconds, const std::optional<double>& limit) { return !limit || seconds <= *limit; }

}  // namespace

TimedRun run_requests(Engine& engine, const std::vector<ScheduledRequest>& requests, const RunLoop& loop) {
  return RequestRun(engine, requests, loop).run();
}

RunFigures figures_of(const TimedRun& run, const ServiceLevel& level) {
  RunFigures figures{.requests = static_cast<int>(run.answers.size()), .seconds = run.seconds};
  std::vector<double> queue, ttft, tpot, itl, e2e;
  for (const TimedAnswer& answer : run.answers) {
    figures.prompt_tokens += answer.usage.prompt_tokens;
    figures.output_tokens += static_cast<int64_t>(answer.tokens.size());
    const bool cut_off = answer.finish == FinishReason::kNone || answer.finish == FinishReason::kCancelled;
    if (!answer.completed() || answer.tokens.empty()) {
      figures.failed += !cut_off;
      continue;
    }
    ++figures.completed;
    figures.cached_tokens += answer.usage.cached_tokens;
    const std::vector<double>& times = answer.token_times;
    const double first = times.front() - answer.due;
    double each = 0;
    queue.push_back(answer.usage.queue_seconds);
    ttft.push_back(first);
    e2e.push_back(times.back() - answer.due);
    if (times.size() > 1) {
      each = (times.back() - times.front()) / static_cast<double>(times.size() - 1);
      tpot.push_back(each);
    }
    for (size_t i = 1; i < times.size(); ++i) itl.push_back(times[i] - times[i - 1]);
    figures.good += meets(first, level.ttft) && meets(each, level.tpot) && meets(e2e.back(), level.e2e);
  }
  figures.queue = spread_of(std::move(queue));
  figures.ttft = spread_of(std::move(ttft));
  figures.tpot = spread_of(std::move(tpot));
  figures.itl = spread_of(std::move(itl));
  figures.e2e = spread_of(std::move(e2e));
  return figures;
}

}  // namespace quire
