// quire run: one answer, or a chat.
#pragma once

#include <optional>
#include <string>

#include "quire/engine.h"

namespace quire {

// What llama.cpp samples with where its user says nothing, so that the same prompt feels the same.
inline SamplingParams run_sampling() { return {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}; }

struct RunOptions {
  EngineOptions engine{.model = {}, .max_num_seqs = 1};
  std::optional<std::string> prompt, system;
  std::string messages_file;  // "-": standard input
  SamplingParams sampling = run_sampling();
  int max_tokens = -1;           // -1: until the answer ends or the context is full
  std::optional<uint64_t> seed;  // none: drawn
  bool raw = false, json = false, quiet = false;
};

// Throws Error when the run fails, CLI::ValidationError when the options make no sense.
void run(const RunOptions& options);

}  // namespace quire
