// How much of the memory the cache gets, and how long sequences may be.
#pragma once

#include <cstddef>

#include "ops/cache_layout.h"
#include "quire/engine.h"

namespace quire {

struct CacheSize {
  int units = 0;
  int states = 0;  // those of running sequences, then checkpoints
  int max_model_len = 0;
  size_t bytes = 0;
  size_t bytes_per_sequence = 0;  // what the longest sequence takes, with its windows and state
};

// What a sequence of so many tokens needs, with the states of all running sequences.
size_t least_cache_bytes(const EngineOptions& options, const CacheLayout& layout, int tokens);

// Sizes the cache within the `memory` left for it of `budget`, and the context length to fit the cache. Throws Error if a
// sequence of options.max_model_len tokens, or one token, does not fit.
CacheSize size_cache(const EngineOptions& options, const CacheLayout& layout, int model_positions, size_t memory,
                     size_t budget);

}  // namespace quire
