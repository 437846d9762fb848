#include "quire/answer_queue.h"

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

namespace quire {
namespace {

// Appends `piece` to what waits. May throw std::bad_alloc; the texts and tokens before are then as they were.
void join_pieces(Output& waiting, const Output& piece) {
  waiting.text.reserve(waiting.text.size() + piece.text.size());
  waiting.tokens.insert(waiting.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  waiting.text += piece.text;
  if (!piece.prompt_logprobs.empty()) waiting.prompt_logprobs = piece.prompt_logprobs;
  if (piece.finish == FinishReason::kNone) return;
  waiting.stop_reason = piece.stop_reason;
  waiting.stop_token = piece.stop_token;
  waiting.error = piece.error;
  waiting.usage = piece.usage;
  waiting.embedding = piece.embedding;
}

}  // namespace

struct AnswerQueue::State {
  struct Pending {
    Output output;
    bool waits = false;  // to be taken
  };

  struct QueuedAnswer {
    uint64_t ticket = 0;
    AnswerQueue::Announce announce = AnswerQueue::Announce::kPieces;
    std::vector<Pending> choices = {};
    int running = 0;                     // choices that have not ended
    bool announced = false;              // it is in State::ready, or wait() has returned it
    std::optional<RequestId> request{};  // set once it is submitted
    bool cancelled = false;              // before it was submitted
    bool forgotten = false;              // nobody takes what still comes
  };

  mutable std::mutex mutex;
  std::condition_variable wake;
  uint64_t last_ticket = 0;
  std::unordered_map<uint64_t, std::shared_ptr<QueuedAnswer>> answers;
  std::vector<Ticket> ready;  // has room for all answers, so the engine's thread allocates nothing here
  int waiting = 0;            // threads in wait()
  uint64_t interrupts = 0;    // each ends the waits that began before
  bool interrupted = false;   // by a call of interrupt() while nobody waited
  bool closed = false;

  // Called by the engine's thread.
  void add(QueuedAnswer& answer, const Output& piece) {
    const std::lock_guard lock(mutex);
    if (closed || answer.forgotten) return;
    Pending& pending = answer.choices[static_cast<size_t>(piece.choice)];
    // Without memory the engine ends the choice with kError, and that end must count even if its text is lost.
    const bool ends = piece.finish != FinishReason::kNone;
    try {
      join_pieces(pending.output, piece);
    } catch (const std::bad_alloc&) {
      if (piece.finish != FinishReason::kError) throw;
    }
    pending.output.finish = piece.finish;
    pending.waits = true;
    if (ends) --answer.running;
    announce(answer);
  }

  // Under the lock.
  void announce(QueuedAnswer& answer) {
    if (answer.announced || (answer.announce == Announce::kEnd && answer.running > 0)) return;
    answer.announced = true;
    ready.push_back(Ticket{answer.ticket});
    wake.notify_one();
  }
};

AnswerQueue::AnswerQueue(Engine& engine) : engine_(engine), state_(std::make_shared<State>()) {}

AnswerQueue::~AnswerQueue() {
  cancel_all();
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
}

AnswerQueue::Ticket AnswerQueue::submit(Request request, Announce announce) {
  const auto answer = std::make_shared<State::QueuedAnswer>();
  answer->announce = announce;
  answer->running = std::clamp(request.sampling.n, 0, kMaxChoices);  // the engine refuses other numbers
  answer->choices.resize(static_cast<size_t>(answer->running));
  for (int i = 0; i < answer->running; ++i) answer->choices[static_cast<size_t>(i)].output.choice = i;
  {
    const std::lock_guard lock(state_->mutex);
    answer->ticket = ++state_->last_ticket;
    state_->ready.reserve(std::max(state_->ready.capacity(), std::bit_ceil(state_->answers.size() + 1)));
    state_->answers.emplace(answer->ticket, answer);
  }
  try {
    const RequestId id = engine_.submit(std::move(request),
                                        [state = state_, answer](const Output& piece) { state->add(*answer, piece); });
    const std::lock_guard lock(state_->mutex);
    answer->request = id;
    if (answer->cancelled) engine_.cancel(id);
  } catch (...) {
    const std::lock_guard lock(state_->mutex);
    state_->answers.erase(answer->ticket);
    throw;
  }
  return Ticket{answer->ticket};
}

std::vector<AnswerQueue::Ticket> AnswerQueue::wait(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(state_->mutex);
  if (!std::exchange(state_->interrupted, false)) {
    const uint64_t before = state_->interrupts;
    ++state_->waiting;
    state_->wake.wait_for(lock, timeout, [&] { return !state_->ready.empty() || state_->interrupts != before; });
    --state_->waiting;
  }
  std::vector<Ticket> all(state_->ready.begin(), state_->ready.end());
  state_->ready.clear();
  return all;
}

std::vector<Output> AnswerQueue::take(Ticket ticket) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->answers.find(static_cast<uint64_t>(ticket));
  if (found == state_->answers.end()) return {};
  State::QueuedAnswer& answer = *found->second;
  std::vector<Output> taken;
  taken.reserve(answer.choices.size());
  for (State::Pending& pending : answer.choices) {
    if (!pending.waits) continue;
    const int choice = pending.output.choice;
    taken.push_back(std::exchange(pending, {}).output);
    pending.output.choice = choice;
  }
  answer.announced = false;
  std::erase(state_->ready, ticket);
  if (answer.running == 0) state_->answers.erase(found);
  return taken;
}

void AnswerQueue::cancel(Ticket ticket) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->answers.find(static_cast<uint64_t>(ticket));
  if (found == state_->answers.end()) return;
  found->second->cancelled = true;
  if (found->second->request) engine_.cancel(*found->second->request);
}

void AnswerQueue::cancel_all() {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [ticket, answer] : state_->answers) {
    answer->cancelled = true;
    if (answer->request) engine_.cancel(*answer->request);
  }
}

void AnswerQueue::forget(Ticket ticket) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->answers.find(static_cast<uint64_t>(ticket));
  if (found == state_->answers.end()) return;
  State::QueuedAnswer& answer = *found->second;
  answer.forgotten = true;
  if (answer.request && answer.running > 0) engine_.cancel(*answer.request);
  std::erase(state_->ready, ticket);
  state_->answers.erase(found);
}

void AnswerQueue::interrupt() {
  const std::lock_guard lock(state_->mutex);
  state_->interrupted = state_->waiting == 0;
  ++state_->interrupts;
  state_->wake.notify_all();
}

size_t AnswerQueue::open() const {
  const std::lock_guard lock(state_->mutex);
  return state_->answers.size();
}

}  // namespace quire
