#include "engine/ranks/rank_group.h"

#include <algorithm>

#include "base/error.h"

namespace quire {

int threads_of_rank(int rank, int ranks, int threads) { return std::max(1, share_of(threads, rank, ranks).size()); }

RankGroup::RankGroup(const CpuBackend& cpu, int ranks, int threads, const Placement& placement)
    : threads_(ranks, placement) {
  const bool take_help = !placement;  // otherwise those that help would read another node's memory
  std::vector<Team*> teams;
  for (int rank = 0; rank < ranks; ++rank) {
    const int own = threads_of_rank(rank, ranks, threads);
    teams.push_back(teams_.emplace_back(std::make_unique<Team>(own, placement.thread_start(rank), take_help)).get());
  }
  local_ = std::make_unique<LocalRanks>(teams);
  for (int rank = 0; rank < ranks; ++rank)
    backends_.push_back(std::make_unique<CpuBackend>(cpu, *teams[static_cast<size_t>(rank)], local_->of(rank)));
}

RankGroup::RankGroup(std::span<Backend* const> devices)
    : threads_(static_cast<int>(devices.size()), {}), devices_(devices[0]->connect(devices)) {
  if (!devices_)
    throw unsupported("--tensor-parallel-size {} is not supported with {}; leave it out", devices.size(),
                      devices[0]->name());
}

}  // namespace quire
