// The sampling settings that a model's authors recommend.
#pragma once

#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "quire/sampling_params.h"

namespace quire {

struct SamplingRecommendation {
  SamplingDefaults values;
  std::vector<std::string> warnings;  // one for each value that was ignored: wrong type or out of range
};

// From the first source that recommends anything:
//   1. the checkpoint: a GGUF's general.sampling.*, or generation_config.json if its do_sample is true
//   2. the entry of models.json whose file has the checkpoint's file name
// Bad values never throw.
SamplingRecommendation sampling_defaults(const Checkpoint& checkpoint);

}  // namespace quire
