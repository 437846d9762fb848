// The ranks of a model in one process: teams of threads that compute the same steps, each its share (ops/communicator.h).
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "base/team.h"
#include "engine/ranks/rank_threads.h"
#include "ops/communicator.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/local_ranks.h"

namespace quire {

inline constexpr int kMaxRanks = 64;

// Threads of a rank, of `threads` in all: at least one.
int threads_of_rank(int rank, int ranks, int threads);

class RankGroup {
 public:
  // cpu: whose kernels and tuning all ranks use; must outlive this. threads: of all ranks together. Throws Error (kResource).
  RankGroup(const CpuBackend& cpu, int ranks, int threads, const Placement& placement = {});

  int size() const { return threads_.size(); }
  // A rank's; only a work() of run() may call its operations. Its memory is this process's.
  Backend& backend(int rank) { return *backends_[static_cast<size_t>(rank)]; }
  // Through which its operations gather.
  Communicator& communicator(int rank) const { return local_->of(rank); }

  // Calls work(rank) for all ranks at once, on a thread for each; the caller is one of them. If a rank fails, the others
  // give up the step; throws what the first one that failed has thrown.
  template <class Work>
  void run(const Work& work) {
    const std::exception_ptr error = threads_.run(work, [this] { local_->give_up(); });
    if (!error) return;
    local_->reset();
    std::rethrow_exception(error);
  }

 private:
  RankThreads threads_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::unique_ptr<LocalRanks> local_;
  std::vector<std::unique_ptr<CpuBackend>> backends_;
};

}  // namespace quire
