// What a load run asks for: when, how long, and with which prompts. Made from a seed before anything is measured.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace quire {

struct PlannedRequest {
  double at = 0;  // seconds after the run's start; open loop only
  int input_tokens = 0, output_tokens = 0;
  std::vector<int64_t> blocks;  // the prompt begins with these, the same number the same tokens; each block_tokens long
};

struct WorkloadOptions {
  std::string trace = {};  // a file; empty: all requests as long as input_tokens and output_tokens say
  int input_tokens = 256, output_tokens = 128;
  double rate = 0;                                  // Poisson arrivals a second; 0: the trace's times
  double time_scale = 1;                            // of the trace's times: 0.1 is ten times as fast
  double length_scale = 1;                          // of the trace's lengths
  int max_input_tokens = 0, max_output_tokens = 0;  // longer ones of the trace are cut to these; 0: no limit
  int requests = 0;                                 // 0: the whole trace
  int skip = 0;                                     // of the trace's beginning
  int shared_prefix = 0;                            // tokens that all prompts begin with
  uint64_t seed = 0;
};

struct Workload {
  std::vector<PlannedRequest> requests;  // by time
  int block_tokens = 0;
  int shared_prefix = 0;
  int shortened = 0;  // requests that were longer than max_input_tokens or max_output_tokens
  uint64_t seed = 0;
};

// A trace is Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) or Mooncake's JSON lines ({"timestamp": ms,
// "input_length", "output_length", "hash_ids": one for every 512 tokens}). Times count from the first request taken.
// Throws Error with file and line where it is neither.
Workload plan_workload(const WorkloadOptions& options);

// Token ids of one prompt, of planned.input_tokens: the shared prefix, the blocks, then tokens of this request alone.
// Ids are in [first_id, last_id].
std::vector<int32_t> prompt_tokens(const Workload& workload, size_t request, int32_t first_id, int32_t last_id);

// The same for servers that only take text: words that nearly every vocabulary has as one token.
std::string prompt_words(const Workload& workload, size_t request);

}  // namespace quire
