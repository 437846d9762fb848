// Ranks of this process, each on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ops/local_ranks.h"

namespace quire::testing {

class LocalGroup {
 public:
  // threads: of each rank's team.
  LocalGroup(int ranks, int threads) {
    std::vector<Team*> teams;
    for (int rank = 0; rank < ranks; ++rank)
      teams.push_back(teams_.emplace_back(std::make_unique<Team>(threads, nullptr, /*takes_help=*/true)).get());
    ranks_ = std::make_unique<LocalRanks>(teams);
  }
  LocalRanks& ranks() { return *ranks_; }
  Team& team(int rank) { return *teams_[static_cast<size_t>(rank)]; }
  void run(const std::function<void(Communicator&)>& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_->size(); ++rank) threads.emplace_back([&, rank] { work(ranks_->of(rank)); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<Team>> teams_;
  std::unique_ptr<LocalRanks> ranks_;
};

}  // namespace quire::testing
