// One answer of the engine, handed to the calling thread piece by piece.
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
  std::string error;  // with kError
  Usage usage;
  bool reader_gone = false;  // `show` returned false
};

// Submits the request and calls `show` on this thread with each piece of text (whole UTF-8 characters). Ctrl-C
// (chat_signals.h) or show() == false cancel the answer. Throws Error when the request can never run.
StreamedAnswer stream_answer(Engine& engine, Request request, const std::function<bool(std::string_view)>& show);

}  // namespace quire
