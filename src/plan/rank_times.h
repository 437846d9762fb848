// What ranks (docs/scale.md) exchange in a step, and how long a step takes with several.
#pragma once

#include "model/config.h"
#include "plan/serving.h"

namespace quire {

struct RankExchange {
  int gathers = 0;              // in a step
  double bytes_per_row = 0;     // that the others send to a rank, for each row of the step
  double bytes_per_logits = 0;  // and for each row whose logits are wanted

  double bytes(const StepLoad& load) const { return bytes_per_row * load.rows() + bytes_per_logits * load.logits; }
};

// Four gathers a layer: the heads' results, the output projection, the gated product, the down projection; and the logits.
// ranks: at least 1; one exchanges nothing.
RankExchange rank_exchange(const ModelConfig& config, int ranks);

// Steps on `ranks` machines like the one that `one` is of: each computes an equal share, then they gather.
// latency: seconds of a gather without bytes; bandwidth: bytes a second that a rank receives.
StepSeconds with_ranks(StepSeconds one, const RankExchange& exchange, int ranks, double latency, double bandwidth);

}  // namespace quire
