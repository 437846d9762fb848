// What the request and the history change in the logits.
#pragma once

#include <span>

#include "sampling/sampler.h"

namespace quire {

// logit_bias, the three penalties and what may be generated, in this order (see sample()). Allocates only when a
// vocabulary is new to the scratch. Ids are below the vocabulary's size; negative ones in the history are skipped.
void adjust_logits(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch);

}  // namespace quire
