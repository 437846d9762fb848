// The interactive chat of `quire run`.
#pragma once

#include <string>

#include "quire/engine.h"

namespace quire {

struct ChatOptions {
  std::string system;       // empty: none
  SamplingParams sampling;  // of every answer; the k-th takes seed + k, so that a session can be repeated
  bool raw = false;         // each line is continued as plain text
  bool quiet = false;       // no greeting, no figures
};

// Talks at the terminal until Ctrl-D or /quit. A failed turn is reported and forgotten. Throws Error when the terminal
// fails.
void chat(Engine& engine, const ChatOptions& options);

}  // namespace quire
