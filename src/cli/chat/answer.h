// One answer of the engine, streamed to the calling thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "quire/engine.h"

namespace quire {

struct StreamedAnswer {
  std::string text;
  TokenIds tokens;
  FinishReason finish = FinishReason::kNone;
  std::string stop_reason;
  std::string error;  // if failed()
  Usage usage;
  bool reader_gone = false;  // `show` returned false
  bool looped = false;       // cut because it repeated itself; `finish` is then kStop

  bool failed() const {
    return finish == FinishReason::kError || finish == FinishReason::kLost || finish == FinishReason::kRefused ||
           finish == FinishReason::kDeadEnd;
  }
};

// Submits the request and calls `show` on this thread with each piece of text (whole UTF-8 characters). Ctrl-C
// (signals.h) and show() == false cancel the answer; so does a loop (repetition.h) if `loop_check` is true. Throws
// Error when the request can never run.
StreamedAnswer stream_answer(Engine& engine, Request request, bool loop_check,
                             const std::function<bool(std::string_view)>& show);

// Why the answer was cut, in words for the user: "[stopped at the -n limit of 512 tokens]". Empty: it ended by itself.
std::string describe_cut(const StreamedAnswer& answer, int max_model_len);

}  // namespace quire
