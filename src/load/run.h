// Sends a workload to a server, as a closed or an open loop.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load/request_record.h"
#include "load/workload.h"

namespace quire {

enum class PromptKind {
  kTokens,  // /completions with token ids: exactly the planned length
  kText,    // /completions with words: about the planned length
  kChat,    // /chat/completions with words: the chat template adds tokens
};

struct LoadOptions {
  std::vector<std::string> urls;  // servers that take turns; at least one
  std::string model, api_key;     // an empty model: the first that the first server lists
  PromptKind prompts = PromptKind::kTokens;
  int32_t first_id = 1000, last_id = 30000;  // range of random tokens; avoids the usual special tokens
  int concurrency = 0;     // > 0: closed loop of this many clients, each sending when its last answer has ended;
                           // 0: open loop, each request sent at its planned time, regardless of earlier ones
  double duration = 0;     // seconds after which no request is sent; 0: send all
  double timeout = 600;    // seconds per request
  int warmup = 1;          // unmeasured requests sent first, one after another
  bool ignore_eos = true;  // answers have exactly the planned length; any other length is a failure
  nlohmann::json extra;    // fields added to the body of each request
};

// Calls `progress` about once a second with the requests that have ended and those sent so far. Fills in
// `options.model` if it is empty. Throws Error if the server cannot be reached or the warm-up fails; a measured request
// that fails is a record with a failure.
std::vector<RequestRecord> run_load(const Workload& workload, LoadOptions& options,
                                    const std::function<void(int ended, int sent)>& progress);

}  // namespace quire
