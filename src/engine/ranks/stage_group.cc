#include "engine/ranks/stage_group.h"

#include "base/cpu.h"
#include "engine/ranks/rank_group.h"

namespace quire {

StageGroup::StageGroup(const CpuBackend& cpu, int threads, std::span<const int> widths, int max_rows,
                       const Placement& placement)
    : threads_(static_cast<int>(widths.size()) + 1, placement) {
  for (int stage = 0; stage < size(); ++stage)
    add_cpu_stage(cpu, threads_of_rank(stage, size(), threads), placement.thread_start(stage));
  links_ = std::make_unique<LocalStages>(backends_, widths, max_rows, threads <= usable_cores());
}

// The device's thread spins if there is a core for it besides those that compute.
StageGroup::StageGroup(const CpuBackend& cpu, int threads, const std::function<Backend&(Backend&)>& device, int width,
                       int max_rows)
    : threads_(2, {}) {
  add_cpu_stage(cpu, threads, {});
  backends_.push_back(&device(*backends_[0]));
  links_ = std::make_unique<LocalStages>(backends_, std::span(&width, 1), max_rows, threads < usable_cores());
}

void StageGroup::add_cpu_stage(const CpuBackend& cpu, int threads, const std::function<void()>& thread_start) {
  teams_.push_back(std::make_unique<Team>(threads, thread_start));
  cpu_backends_.push_back(std::make_unique<CpuBackend>(cpu, *teams_.back()));
  backends_.push_back(cpu_backends_.back().get());
}

}  // namespace quire
