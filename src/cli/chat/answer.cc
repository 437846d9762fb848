#include "cli/chat/answer.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "cli/chat/repetition.h"
#include "cli/chat/signals.h"

namespace quire {
namespace {

// Handed from the engine's thread, which must not wait for a slow terminal, to this one.
struct Pieces {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Output> queue;
};

}  // namespace

StreamedAnswer stream_answer(Engine& engine, Request request, bool loop_check,
                             const std::function<bool(std::string_view)>& show) {
  const auto pieces = std::make_shared<Pieces>();
  const RequestId id = engine.submit(std::move(request), [pieces](const Output& out) {
    const std::lock_guard lock(pieces->mutex);
    pieces->queue.push_back(out);
    pieces->arrived.notify_one();
  });
  StreamedAnswer answer;
  bool cancelled = false;
  while (answer.finish == FinishReason::kNone) {
    if (!cancelled && (answer.reader_gone || answer.looped || chat_signals().interrupted)) {
      cancelled = true;
      engine.cancel(id);
    }
    std::deque<Output> arrived;
    {
      std::unique_lock lock(pieces->mutex);
      // A signal handler cannot notify; a person does not notice a tenth of a second.
      pieces->arrived.wait_for(lock, std::chrono::milliseconds(100), [&] { return !pieces->queue.empty(); });
      arrived.swap(pieces->queue);
    }
    for (const Output& out : arrived) {
      if (out.finish != FinishReason::kNone) {
        answer.finish = out.finish;
        answer.stop_reason = out.stop_reason;
        answer.error = out.error;
        answer.usage = out.usage;
      }
      if (answer.looped) continue;  // tokens computed before the engine was told
      for (const OutputToken& token : out.tokens) answer.tokens.push_back(token.id);
      answer.text += out.text;
      if (!out.text.empty() && !answer.reader_gone) answer.reader_gone = !show(out.text);
      answer.looped = loop_check && out.finish == FinishReason::kNone && ends_in_loop(answer.tokens);
    }
  }
  if (answer.looped) {
    answer.finish = FinishReason::kStop;
    answer.stop_reason = "repetition";
    answer.usage.completion_tokens = static_cast<int>(answer.tokens.size());
  }
  return answer;
}

std::string describe_cut(const StreamedAnswer& answer, int max_model_len) {
  const int tokens = answer.usage.completion_tokens;
  if (answer.looped)
    return fmt::format("[stopped: the answer repeated itself for {}+ tokens; --no-loop-check lets it]", kLoopTokens);
  if (answer.finish == FinishReason::kCancelled) return "[stopped]";
  if (answer.finish != FinishReason::kLength) return {};
  if (answer.usage.prompt_tokens + tokens >= max_model_len)
    return fmt::format("[stopped: the context of {} tokens is full]", max_model_len);
  return fmt::format("[stopped at the -n limit of {} tokens]", tokens);
}

}  // namespace quire
