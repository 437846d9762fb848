// The ranks of a model in one process: teams of threads, or devices, that compute the same steps, each its share (ops/communicator.h).
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "base/team.h"
#include "engine/ranks/rank_threads.h"
#include "ops/communicator.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/local_ranks.h"
#include "ops/ranks/device_ranks.h"

namespace quire {

inline constexpr int kMaxRanks = 64;

// Threads of a rank, of `threads` in all: at least one.
int threads_of_rank(int rank, int ranks, int threads);

class RankGroup {
 public:
  // cpu: whose kernels and tuning all ranks use; must outlive this. threads: of all ranks together. Throws Error (kResource).
  RankGroup(const CpuBackend& cpu, int ranks, int threads, const Placement& placement = {});

  // Ranks that are devices: a thread for each waits for it. devices: by rank, of one kind; they must outlive this. Throws Error: they
  // cannot be ranks, or cannot reach each other.
  explicit RankGroup(std::span<Backend* const> devices);

  int size() const { return threads_.size(); }
  // A rank's; only a work() of run() may call its operations. Its memory is this process's, or its device's.
  Backend& backend(int rank) { return devices_ ? devices_->backend(rank) : *backends_[static_cast<size_t>(rank)]; }
  // Through which the operations of a rank of the processor gather.
  Communicator& communicator(int rank) const { return local_->of(rank); }
  // What a rank has received.
  const GatherCounts& received(int rank) const {
    return devices_ ? devices_->received(rank) : local_->of(rank).counts();
  }

  // Calls work(rank) for all ranks at once, on a thread for each; the caller is one of them. If a rank fails, the others
  // give up the step; throws what the first one that failed has thrown.
  template <class Work>
  void run(const Work& work) {
    const std::exception_ptr error = threads_.run(work, [this] { devices_ ? devices_->give_up() : local_->give_up(); });
    if (!error) return;
    devices_ ? devices_->reset() : local_->reset();
    std::rethrow_exception(error);
  }

 private:
  RankThreads threads_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::unique_ptr<LocalRanks> local_;
  std::vector<std::unique_ptr<CpuBackend>> backends_;
  std::unique_ptr<DeviceRanks> devices_;  // in place of the three; nullptr: the processor computes
};

}  // namespace quire
