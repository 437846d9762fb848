#include "engine/ranks/rank_group.h"

#include <algorithm>
#include <utility>

namespace quire {

int threads_of_rank(int rank, int ranks, int threads) { return std::max(1, share_of(threads, rank, ranks).size()); }

RankGroup::RankGroup(const CpuBackend& cpu, int ranks, int threads)
    : mains_(ranks), errors_(static_cast<size_t>(ranks)) {
  std::vector<Team*> teams;
  for (int rank = 0; rank < ranks; ++rank)
    teams.push_back(teams_.emplace_back(std::make_unique<Team>(threads_of_rank(rank, ranks, threads))).get());
  local_ = std::make_unique<LocalRanks>(teams);
  for (int rank = 0; rank < ranks; ++rank)
    backends_.push_back(std::make_unique<CpuBackend>(cpu, *teams[static_cast<size_t>(rank)], local_->of(rank)));
}

void RankGroup::throw_errors() {
  std::exception_ptr first;
  for (std::exception_ptr& error : errors_) {
    if (std::exception_ptr one = std::exchange(error, nullptr); one && !first) first = std::move(one);
  }
  if (!first) return;
  local_->reset();
  std::rethrow_exception(first);
}

}  // namespace quire
