#include "engine/ranks/stage_group.h"

#include "base/cpu.h"
#include "engine/ranks/rank_group.h"

namespace quire {

StageGroup::StageGroup(const CpuBackend& cpu, int threads, std::span<const int> widths, int max_rows,
                       const Placement& placement)
    : threads_(static_cast<int>(widths.size()) + 1, placement), links_(widths, max_rows, threads <= usable_cores()) {
  for (int stage = 0; stage < size(); ++stage) {
    teams_.push_back(std::make_unique<Team>(threads_of_rank(stage, size(), threads), placement.thread_start(stage)));
    backends_.push_back(std::make_unique<CpuBackend>(cpu, *teams_.back()));
  }
}

}  // namespace quire
