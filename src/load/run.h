// Sends a workload to a server, open or closed loop.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load/report.h"
#include "load/workload.h"

namespace quire {

enum class PromptKind {
  kTokens,  // /completions with token ids: as long as planned to the token
  kText,    // /completions with words: nearly so
  kChat,    // /chat/completions with words: and what the chat template adds
};

struct LoadOptions {
  std::string url, model, api_key;  // an empty model: the first that the server lists
  PromptKind prompts = PromptKind::kTokens;
  int32_t first_id = 1000, last_id = 30000;  // of token prompts; special tokens lie outside in all usual vocabularies
  int concurrency = 0;     // closed loop: each of so many clients sends its next request when its last has ended;
                           // 0: open loop, each request at its time, whatever has become of the others
  double duration = 0;     // seconds after which no request is sent any more; 0: until all are sent
  double timeout = 600;    // seconds for a request
  int warmup = 1;          // requests that are sent first, one after the other, and not measured
  bool ignore_eos = true;  // answers are as long as planned, and one that is not has failed
  nlohmann::json extra;    // fields to add to each request's body
};

// `progress` is called about once a second with what has ended so far. Throws Error when the server cannot be asked at
// all; requests that fail are records with a failure.
std::vector<RequestRecord> run_load(const Workload& workload, LoadOptions& options,
                                    const std::function<void(int ended, int sent)>& progress);

}  // namespace quire
