// Prompts of real text for a workload: speculation, for one, depends on what the text is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/advise/workload.h"
#include "cli/measure/request_run.h"

namespace quire {

// Letters, articles, code and lists in English: those of `quire bench speculative`, without what is asked of them.
std::string built_in_text();

class AdvicePrompts {
 public:
  // Reads the workload's text. The engine's tokenizer and chat template make the prompts; it is not kept. Throws Error: the
  // model has no vocabulary, or the text is shorter than a page of prompts.
  AdvicePrompts(const Engine& engine, const AdviceWorkload& workload);

  // The requests of run number `run`. Each run has texts of its own after the shared prefix, so no prompt is found whole in
  // the prefix cache. About as long as planned: instructions and the chat template come on top. Greedy, or with the
  // workload's temperature; the model ends its answers, at the latest after the planned number of tokens.
  std::vector<ScheduledRequest> requests(const Engine& engine, const AdviceWorkload& workload, uint64_t run) const;

  // The first tokens of the text, at most `most`, as one prompt.
  TokenIds text(const Engine& engine, size_t most) const;

 private:
  // `count` tokens from `start` on; the text is a circle.
  std::string passage(const Engine& engine, uint64_t start, int count) const;
  std::string content(const Engine& engine, const AdviceWorkload& workload, const PlannedRequest& planned,
                      uint64_t index) const;

  std::string whole_;
  TokenIds ids_;
};

}  // namespace quire
