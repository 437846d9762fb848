#include "server/api/exchange.h"

#include <utility>

namespace quire {

size_t payload_bytes(const Output& output) {
  size_t bytes = output.text.size() + output.embedding.size() * sizeof(float);
  for (const OutputToken& token : output.tokens) bytes += output_token_bytes(token.top_logprobs.size());
  for (const OutputToken& token : output.prompt_logprobs) bytes += output_token_bytes(token.top_logprobs.size());
  return bytes;
}

Exchange::Exchange(Completer& completer, std::shared_ptr<ModelMetrics> metrics, std::function<void()> wake,
                   size_t max_bytes, ByteBudget& replies)
    : completer_(completer),
      metrics_(std::move(metrics)),
      max_bytes_(max_bytes),
      replies_(replies),
      wake_(std::move(wake)) {}

void Exchange::start(std::vector<Request> requests, Places places) {
  int choices = 0;
  for (const Request& request : requests) choices += request.sampling.n;
  last_.resize(static_cast<size_t>(choices));
  {
    const std::lock_guard lock(mutex_);
    places_ = std::move(places);
    unfinished_ = choices;
  }
  int first = 0;
  try {
    for (Request& request : requests) {
      const int n = request.sampling.n, prompt_tokens = static_cast<int>(request.prompt.size());
      // Without the lock: a callback may run before submit returns.
      const RequestId id = completer_.submit(
          std::move(request),
          [self = shared_from_this(), first](const Output& output) { self->receive(first + output.choice, output); });
      first += n;
      metrics_->prompt_admitted(prompt_tokens);
      const std::lock_guard lock(mutex_);
      ids_.push_back(id);
    }
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      unfinished_ -= choices - first;
    }
    close();
    throw;
  }
  const bool cancelled = [&] {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }();
  if (cancelled) cancel_submitted();  // it overflowed before the ids were known
}

void Exchange::receive(int choice, const Output& output) {
  const auto now = std::chrono::steady_clock::now();
  const auto index = static_cast<size_t>(choice);
  const bool first = last_[index] == std::chrono::steady_clock::time_point{};
  if (!output.tokens.empty()) {
    metrics_->tokens_generated(static_cast<int>(output.tokens.size()),
                               first ? -1 : std::chrono::duration<double>(now - last_[index]).count());
    last_[index] = now;
  }
  const bool finished = output.finish != FinishReason::kNone;
  Piece piece{choice, output};
  bool full = false;
  {
    // Allocate before counting: if an allocation fails, the engine ends the choice with another call.
    const std::lock_guard lock(mutex_);
    if (wake_) {
      const size_t bytes = sizeof(Piece) + payload_bytes(output);
      const bool held = !overflowed_ && bytes_ + bytes <= max_bytes_ && replies_.take(bytes);
      if (held) bytes_ += bytes;
      full = !held && !overflowed_;
      overflowed_ = !held;
      // Always keep a finish, so that the connection learns of the end.
      if (!overflowed_ || finished || full) {
        if (pieces_.empty() || full) wake_();
        pieces_.push_back(std::move(piece));
      }
    }
    if (finished) {
      metrics_->choice_finished(output);
      --unfinished_;
      places_.leave(1);
    }
  }
  if (full) cancel();
}

void Exchange::take(std::vector<Piece>& pieces) {
  const std::lock_guard lock(mutex_);
  replies_.give_back(std::exchange(bytes_, 0));
  if (pieces.empty()) {
    pieces.swap(pieces_);
    return;
  }
  pieces.insert(pieces.end(), std::make_move_iterator(pieces_.begin()), std::make_move_iterator(pieces_.end()));
  pieces_.clear();
}

bool Exchange::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

void Exchange::cancel_submitted() {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = ids_;
  }
  for (const RequestId id : ids) completer_.cancel(id);
}

void Exchange::cancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (unfinished_ == 0) return;
  }
  cancel_submitted();
}

void Exchange::close() {
  {
    const std::lock_guard lock(mutex_);
    wake_ = nullptr;
    pieces_.clear();
    replies_.give_back(std::exchange(bytes_, 0));
    if (unfinished_ > 0) places_.abandon();
  }
  cancel();
}

}  // namespace quire
