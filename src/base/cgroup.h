// The limits that control groups (version 1 or 2) set for this process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>

namespace quire {

struct CgroupLimits {
  size_t memory = std::numeric_limits<size_t>::max();      // bytes that may still be allocated
  double cores = std::numeric_limits<double>::infinity();  // CPU seconds per second
};

// The lowest limits of the process's groups and their ancestors. `root`: the file system with /proc and /sys.
CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace quire
