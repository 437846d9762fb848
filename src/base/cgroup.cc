#include "base/cgroup.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace quire {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> bytes_in(const fs::path& file) {
  std::ifstream in(file);
  uint64_t bytes = 0;
  return in >> bytes ? std::optional(bytes) : std::nullopt;  // "max" does not parse
}

// A value in memory.stat, which has a name and a number per line; 0 if it is missing.
uint64_t stat_in(const fs::path& file, const char* wanted) {
  std::ifstream in(file);
  uint64_t value = 0;
  for (std::string name; in >> name >> value;) {
    if (name == wanted) return value;
  }
  return 0;
}

struct MemoryFiles {
  const char *limit, *used;
  const char* reclaimable;  // in memory.stat: page cache that was not used recently
};
constexpr MemoryFiles kMemory1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr MemoryFiles kMemory2 = {"memory.max", "memory.current", "inactive_file"};
constexpr MemoryFiles kSlowed2 = {"memory.high", "memory.current", "inactive_file"};  // throttles

void limit_memory(const fs::path& group, const MemoryFiles& files, CgroupLimits& limits) {
  const auto limit = bytes_in(group / files.limit);
  if (!limit) return;
  const uint64_t used = bytes_in(group / files.used).value_or(0);
  // The page cache counts as used, but the kernel reclaims it when memory is needed.
  const uint64_t held = used - std::min(used, stat_in(group / "memory.stat", files.reclaimable));
  limits.memory = std::min<size_t>(limits.memory, *limit - std::min(*limit, held));
}

void limit_cores(double quota, double period, CgroupLimits& limits) {
  if (quota > 0 && period > 0) limits.cores = std::min(limits.cores, quota / period);
}

void limit_cores1(const fs::path& group, CgroupLimits& limits) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;  // a quota of -1: no limit
  if (quota_file >> quota && period_file >> period) limit_cores(quota, period, limits);
}

void limit_cores2(const fs::path& group, CgroupLimits& limits) {
  std::ifstream file(group / "cpu.max");  // "200000 100000"; "max 100000" does not parse
  double quota = 0, period = 0;
  if (file >> quota >> period) limit_cores(quota, period, limits);
}

// Calls look(folder) for a group and all its ancestors. Some folders may be missing: a container often sees its own
// group at the root of the mount, while /proc names the group's path on the host.
template <class Look>
void for_group_and_parents(const fs::path& mount, const fs::path& group, const Look& look) {
  for (fs::path at = group.lexically_normal().relative_path();; at = at.parent_path()) {
    look(mount / at);
    if (at.empty()) return;
  }
}

}  // namespace

CgroupLimits cgroup_limits(const fs::path& root) {
  CgroupLimits limits;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // ID:CONTROLLER,...:GROUP; version 2 names no controllers
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) {
      for_group_and_parents(mounts / "memory", group,
                            [&](const fs::path& folder) { limit_memory(folder, kMemory1, limits); });
    }
    if (controllers.find(",cpu,") != std::string::npos) {
      for_group_and_parents(mounts / "cpu", group, [&](const fs::path& folder) { limit_cores1(folder, limits); });
    }
    if (controllers == ",,") {
      for_group_and_parents(mounts, group, [&](const fs::path& folder) {
        limit_memory(folder, kMemory2, limits);
        limit_memory(folder, kSlowed2, limits);
        limit_cores2(folder, limits);
      });
    }
  }
  return limits;
}

}  // namespace quire
