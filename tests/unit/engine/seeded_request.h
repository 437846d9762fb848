// A request whose answer depends on every logit: sampled with a fixed seed, of a fixed length.
#pragma once

#include <utility>

#include "quire/engine.h"

namespace quire {

inline Request seeded_request(TokenIds prompt, int max_tokens = 20) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0.8f;
  r.sampling.seed = 7;
  r.sampling.max_tokens = max_tokens;
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 0;
  return r;
}

}  // namespace quire
