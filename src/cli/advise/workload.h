// The load that advice is for: requests by their lengths, and how many run at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "load/workload.h"

namespace quire {

// What is asked about the text of a prompt, and so how much of an answer repeats it.
enum class AdviceKind : uint8_t {
  kChat,      // a system prompt and a question
  kRag,       // long documents, the same for all, and a question about them
  kClassify,  // instructions, a short text, and an answer of a few tokens
};

struct AdviceWorkload {
  std::string name;  // chat, rag, classify, or the file
  AdviceKind kind = AdviceKind::kChat;
  int concurrency = 4;    // requests that run at once, a closed loop; at most as many as there are
  int shared_prefix = 0;  // tokens that all prompts begin with
  int block_tokens = 0;   // of the blocks of a trace
  float temperature = 0;
  std::string text_file = {};            // that prompts are cut from; empty: built in
  std::vector<PlannedRequest> requests;  // input_tokens: with the shared prefix; `at` does not count
  double scale = 1;                      // of all lengths, against what was asked for

  int longest() const;  // prompt and answer of the longest request
  double mean_prompt() const;
  double mean_answer() const;
};

inline constexpr std::string_view kAdviceKinds[] = {"chat", "rag", "classify"};

// A name of kAdviceKinds, or a JSON file, whose form docs/planning.md shows. Throws Error that names the field.
AdviceWorkload read_advice_workload(const std::string& name_or_file);

// The same with lengths multiplied by `scale`, in (0, 1]; but 8 tokens of a prompt and 4 of an answer stay, if there are as
// many.
AdviceWorkload scaled(AdviceWorkload workload, double scale);

}  // namespace quire
