// Plans the requests of a load run: when to send them, how long they are, which prompts. The plan is drawn from a seed
// before anything is measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct PlannedRequest {
  double at = 0;  // seconds after the start of the run; open loop only
  int input_tokens = 0, output_tokens = 0;
  std::vector<int64_t>
      blocks;  // the prompt begins with these blocks of Workload::block_tokens; equal ids, equal tokens
};

struct WorkloadOptions {
  std::string trace = {};                           // a file for read_trace(); empty: all requests have equal lengths
  int input_tokens = 256, output_tokens = 128;      // each request's, without a trace
  double rate = 0;                                  // Poisson arrivals per second; 0: the times of the trace
  double time_scale = 1;                            // multiplies the trace's times: 0.1 is ten times as fast
  double length_scale = 1;                          // multiplies the trace's lengths
  int max_input_tokens = 0, max_output_tokens = 0;  // longer requests of the trace are shortened; 0: no limit
  int requests = 0;                                 // 0: the whole trace
  int skip = 0;                                     // requests at the start of the trace to leave out
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

// Times count from the first request taken. Throws Error if the options do not fit the trace or each other.
Workload plan_workload(const WorkloadOptions& options);

// A part of a prompt. Two pieces with the same content have the same tokens, as far as the shorter one reaches.
struct PlannedPiece {
  uint64_t content = 0;
  int tokens = 0;
};
// What the prompt of a request is made of: the shared prefix, the blocks, then tokens that no other request has.
std::vector<PlannedPiece> prompt_pieces(const Workload& workload, size_t request);

// The prompt of one request, planned.input_tokens ids in [first_id, last_id]: the shared prefix, the blocks, then
// tokens that no other request has.
std::vector<int32_t> prompt_tokens(const Workload& workload, size_t request, int32_t first_id, int32_t last_id);

// The same as text, for servers that do not accept ids: words that are one token in nearly every vocabulary.
std::string prompt_words(const Workload& workload, size_t request);

}  // namespace quire
