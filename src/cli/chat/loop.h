// The interactive chat of `quire run`.
#pragma once

#include <string>

#include "quire/engine.h"

namespace quire {

struct ChatOptions {
  std::string system;         // empty: none
  SamplingParams sampling;    // for every answer; answer k uses seed + k, so that a session can be repeated
  Constraint constraint;      // for every answer; null: none
  std::string adapter;        // Request::adapter
  std::string sampling_text;  // the sampling in words, for the greeting
  double bandwidth = 0;       // the memory's, in bytes per second, for /stats; 0: not measured
  bool raw = false;           // each message is continued as plain text
  bool quiet = false;         // no greeting, no statistics
  bool loop_check = true;     // stop an answer that repeats itself
};

// Chats in the terminal until Ctrl-D or /quit. A failed turn is reported and left out of the conversation. Throws Error
// when the terminal fails.
void chat(Engine& engine, const ChatOptions& options);

}  // namespace quire
