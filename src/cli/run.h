// quire run: one answer, or a chat.
#pragma once

#include <optional>
#include <string>

#include "cli/flags/constraint_flags.h"
#include "cli/flags/process_flags.h"
#include "cli/flags/sampling_flags.h"
#include "quire/engine.h"

namespace quire {

inline constexpr int kRunMaxTokens = 512;  // for an answer, unless -n says otherwise

struct RunOptions {
  EngineOptions engine{.model = {}, .max_num_seqs = 1};
  ProcessFlags processes;
  std::optional<std::string> prompt, system;
  std::string messages_file;  // "-": standard input
  SamplingFlags sampling;
  ConstraintFlags constraint;
  int max_tokens = kRunMaxTokens;  // -1: until the answer ends or the context is full
  std::optional<uint64_t> seed;    // none: drawn
  bool raw = false, json = false, quiet = false;
  bool loop_check = true;  // stop an answer that repeats itself
};

// Throws Error when the run fails, CLI::ValidationError when the options contradict each other.
void run(RunOptions options);

}  // namespace quire
