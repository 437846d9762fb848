// The stages of a model in one process: teams of threads, or one and a device, that each compute some of its layers
// (ops/stage_link.h).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/team.h"
#include "engine/ranks/rank_threads.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/local_stages.h"

namespace quire {

class StageGroup {
 public:
  // cpu: whose kernels and tuning all stages use; must outlive this. threads: of all stages together, which share them as ranks
  // do (threads_of_rank()). widths: as LocalStages takes them. Throws Error (kResource).
  StageGroup(const CpuBackend& cpu, int threads, std::span<const int> widths, int max_rows,
             const Placement& placement = {});
  // Two stages: the CPU's with so many threads, then the device's. device(the CPU's backend) is the device's, which may compute
  // with the CPU's threads, too: both then take turns. It must outlive this. width: of the border between them.
  StageGroup(const CpuBackend& cpu, int threads, const std::function<Backend&(Backend&)>& device, int width,
             int max_rows);

  int size() const { return threads_.size(); }
  // A stage's; only a work() of run() may call its operations.
  Backend& backend(int stage) { return *backends_[static_cast<size_t>(stage)]; }
  StageLink& link(int stage) const { return links_->of(stage); }

  // As RankGroup::run().
  template <class Work>
  void run(const Work& work) {
    const std::exception_ptr error = threads_.run(work, [this] { links_->give_up(); });
    if (!error) return;
    links_->reset();
    std::rethrow_exception(error);
  }

 private:
  void add_cpu_stage(const CpuBackend& cpu, int threads, const std::function<void()>& thread_start);

  RankThreads threads_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::vector<std::unique_ptr<CpuBackend>> cpu_backends_;
  std::vector<Backend*> backends_;  // by stage
  std::unique_ptr<LocalStages> links_;
};

}  // namespace quire
