// The pages of a cache's layer, for kernels.
#pragma once

#include "cuda/kernels/kv_pages.h"
#include "cuda/kernels/turn_heads.h"
#include "ops/cache_memory.h"

namespace quire::cuda {

// Page numbers are units of the layer's group.
KvPages kv_pages(const CacheMemory& cache, int layer);
// How caches of few bits turn heads of this size.
HeadTurn head_turn(int dim);

}  // namespace quire::cuda
