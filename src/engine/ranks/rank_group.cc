#include "engine/ranks/rank_group.h"

#include <algorithm>

#include "base/error.h"

namespace quire {

int threads_of_rank(int rank, int ranks, int threads) { return std::max(1, share_of(threads, rank, ranks).size()); }

RankGroup::RankGroup(const CpuBackend& cpu, int ranks, int threads, const Placement& placement)
    : threads_(ranks, placement) {
  std::vector<Team*> teams;
  for (int rank = 0; rank < ranks; ++rank)
    teams.push_back(teams_
                        .emplace_back(std::make_unique<Team>(threads_of_rank(rank, ranks, threads),
                                                             placement.thread_start(rank), /*takes_help=*/true))
                        .get());
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
