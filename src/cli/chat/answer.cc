#include "cli/chat/answer.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "cli/chat/signals.h"

namespace quire {
namespace {

// Between the engine's thread, which must not wait for a slow terminal, and this one.
struct Pieces {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Output> queue;
};

}  // namespace

StreamedAnswer stream_answer(Engine& engine, Request request, const std::function<bool(std::string_view)>& show) {
  const auto pieces = std::make_shared<Pieces>();
  const RequestId id = engine.submit(std::move(request), [pieces](const Output& out) {
    const std::lock_guard lock(pieces->mutex);
    pieces->queue.push_back(out);
    pieces->arrived.notify_one();
  });
  StreamedAnswer answer;
  bool cancelled = false;
  while (answer.finish == FinishReason::kNone) {
    if (!cancelled && (answer.reader_gone || chat_signals().interrupted)) {
      cancelled = true;
      engine.cancel(id);
    }
    std::deque<Output> arrived;
    {
      std::unique_lock lock(pieces->mutex);
      // A handler cannot notify; looking ten times a second is soon enough for a finger.
      pieces->arrived.wait_for(lock, std::chrono::milliseconds(100), [&] { return !pieces->queue.empty(); });
      arrived.swap(pieces->queue);
    }
    for (const Output& out : arrived) {
      for (const OutputToken& token : out.tokens) answer.tokens.push_back(token.id);
      answer.text += out.text;
      if (!out.text.empty() && !answer.reader_gone) answer.reader_gone = !show(out.text);
      if (out.finish == FinishReason::kNone) continue;
      answer.finish = out.finish;
      answer.stop_reason = out.stop_reason;
      answer.error = out.error;
      answer.usage = out.usage;
    }
  }
  return answer;
}

}  // namespace quire
