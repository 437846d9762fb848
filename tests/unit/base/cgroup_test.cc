#include "base/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <fstream>
#include <string>

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

// A file system with only the files that a test writes.
class Cgroup : public ::testing::Test {
 protected:
  Cgroup() {
    std::string name = fs::temp_directory_path() / "quire-cgroup-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~Cgroup() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void write_group(const fs::path& path, const std::string& max, const std::string& current) {
    write("sys/fs/cgroup" / path / "memory.max", max + "\n");
    write("sys/fs/cgroup" / path / "memory.current", current + "\n");
  }

  fs::path root_;
};

TEST_F(Cgroup, SetsNoLimitsWithoutGroups) {
  EXPECT_EQ(cgroup_limits(root_).memory, kUnlimited);
  EXPECT_TRUE(std::isinf(cgroup_limits(root_).cores));
  write("proc/self/cgroup", "0::/\n");
  write_group("", "max", "100");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_limits(root_).memory, kUnlimited);
  EXPECT_TRUE(std::isinf(cgroup_limits(root_).cores));
}

TEST_F(Cgroup, TakesTheLowestLimitOfAllAncestors) {
  write("proc/self/cgroup", "0::/user.slice/run.scope\n");
  write_group("user.slice/run.scope", "4000", "1000");
  write_group("user.slice", "8000", "6000");
  write("sys/fs/cgroup/user.slice/run.scope/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_limits(root_).memory, 2000u);
  EXPECT_EQ(cgroup_limits(root_).cores, 1.5);
  write_group("user.slice", "max", "6000");
  write("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_limits(root_).memory, 3000u);
  EXPECT_EQ(cgroup_limits(root_).cores, 4);
  write("sys/fs/cgroup/user.slice/run.scope/memory.high", "2500\n");
  EXPECT_EQ(cgroup_limits(root_).memory, 1500u);
}

TEST_F(Cgroup, CountsThePageCacheAsFree) {
  write("proc/self/cgroup", "0::/\n");
  write_group("", "4000", "3900");
  write("sys/fs/cgroup/memory.stat", "anon 400\nfile 3500\nactive_file 500\ninactive_file 3000\n");
  EXPECT_EQ(cgroup_limits(root_).memory, 3100u);
}

TEST_F(Cgroup, LeavesNoMemoryAboveItsLimit) {
  write("proc/self/cgroup", "0::/\n");
  write_group("", "4000", "5000");
  EXPECT_EQ(cgroup_limits(root_).memory, 0u);
}

TEST_F(Cgroup, IsFoundAtTheRootOfAContainersMount) {
  write("proc/self/cgroup", "0::/../../docker/0123\n");
  write_group("", "4000", "1000");
  EXPECT_EQ(cgroup_limits(root_).memory, 3000u);
}

TEST_F(Cgroup, ReadsLimitsOfVersion1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/app\n4:memory:/app/worker\n1:name=systemd:/app\n0::/app\n");
  const fs::path memory = "sys/fs/cgroup/memory", cpu = "sys/fs/cgroup/cpu";
  write(memory / "memory.limit_in_bytes", "9223372036854771712\n");
  write(memory / "memory.usage_in_bytes", "7000\n");
  write(memory / "app/memory.limit_in_bytes", "5000\n");
  write(memory / "app/memory.usage_in_bytes", "4000\n");
  write(memory / "app/memory.stat", "inactive_file 10\ntotal_inactive_file 1500\n");
  write(cpu / "cpu.cfs_quota_us", "-1\n");
  write(cpu / "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_limits(root_).memory, 2500u);
  EXPECT_TRUE(std::isinf(cgroup_limits(root_).cores));
  write(cpu / "app/cpu.cfs_quota_us", "250000\n");
  write(cpu / "app/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_limits(root_).cores, 2.5);
}

}  // namespace
}  // namespace quire
