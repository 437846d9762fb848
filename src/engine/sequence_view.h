// What the scheduler is shown of the engine's sequences.
#pragma once

#include "engine/cache/page_cache.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace quire {

inline uint64_t arrival(const RequestState& r) { return static_cast<uint64_t>(r.id); }  // ids ascend

// `own_units`: count the units that preempting the sequence would free, which takes time.
SequenceView view_running(Sequence& s, const PageCache& cache, bool own_units);
// After PageCache::look_up.
SequenceView view_waiting(Sequence& s, const PageCache& cache, Clock::time_point now);

}  // namespace quire
