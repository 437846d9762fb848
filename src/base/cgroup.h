// What control groups, of version 1 or 2, leave to this process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>

namespace quire {

struct CgroupLimits {
  size_t memory = std::numeric_limits<size_t>::max();      // bytes that may still be taken
  double cores = std::numeric_limits<double>::infinity();  // processor time a second
};

// The least of the process's groups and of those they lie in. `root` is the file system with /proc and /sys.
CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace quire
