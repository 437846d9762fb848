// What requests meet at a cluster: its replicas and its router in virtual time.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/spec.h"
#include "load/workload.h"
#include "plan/serving.h"

namespace quire {

struct SimulatedRequest {
  double arrived = 0, first_token = 0, finished = 0;  // seconds after the start
  int cached_tokens = 0;                              // of the prompt
  int replica = 0;                                    // that computed the prompt

  double ttft() const { return first_token - arrived; }
  // Mean seconds between tokens; 0: the answer has one.
  double tpot(int answer) const { return answer > 1 ? (finished - first_token) / (answer - 1) : 0; }
};

struct SimulationResult {
  std::vector<SimulatedRequest> requests;  // in the order of the workload
  std::vector<double> busy;                // seconds in steps, of each replica, then of each decoder
  uint64_t steps = 0, preemptions = 0;
  double seconds = 0;  // until the last answer ended
};

struct SimulationInputs {
  const Workload& workload;  // by time; a prompt and its answer fit the cache
  StepSeconds step;          // seconds of a step on one replica, with all its ranks
  double token_bytes = 0;    // of the KV cache: what a token of a prompt takes on the network
  int page_tokens = 16;      // that the simulation counts pages in
};

// The same result for the same inputs. Tokens stream to the client as they come, `network.latency` later.
SimulationResult simulate_cluster(const ClusterSpec& spec, const SimulationInputs& inputs);

// Tokens of a page, so that the replicas' caches have at most a few million pages together: Quire's own, or more.
int simulated_page_tokens(const ClusterSpec& spec);

}  // namespace quire
