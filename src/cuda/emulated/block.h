// Runs the blocks of a launch, one cluster at a time, which by default is one block: its threads are fibers, which run until they
// must wait for one another.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cuda/emulated/arrivals.h"
#include "cuda/emulated/copies.h"
#include "cuda/emulated/counters.h"
#include "cuda/emulated/fibers.h"
#include "cuda/emulated/global_memory.h"
#include "cuda/emulated/machine.h"
#include "cuda/emulated/requests.h"
#include "cuda/emulated/shared_shadow.h"
#include "cuda/emulated/wide_products.h"
#include "cuda/launch.h"

namespace quire::cuda::emulated {

inline constexpr int kWarpLanes = 32;
inline constexpr int kMostThreads = 1024;        // of a block
inline constexpr int kMostSharedBytes = 232448;  // of a block, as on compute capability 9.0
inline constexpr int kMostCluster = 8;           // blocks

class BlockRunner;

// A thread of the running cluster.
struct ThreadState : ThreadPlace {
  enum class Doing : uint8_t { kRunning, kWaitingForWarp, kWaitingAtBarrier, kEnded };

  int index = 0;  // among the threads of its cluster
  BlockRunner* runner = nullptr;
  Doing doing = Doing::kRunning;
  const char* waits_for = "";  // if it waits: the name of the operation
  Site site;                   // of the last barrier or operation of its warp
  bool waited = true;          // for earlier launches
  AsyncCopies copies;

  int lane() const { return index % kWarpLanes; }
  int warp() const { return index / kWarpLanes; }  // of the cluster's
};

// An operation of all lanes: it starts when the last of them arrives. function(): the lanes' arguments -> their results.
struct WarpOperation {
  const char* name;
  void (*function)(BlockRunner& runner, int warp, std::span<void* const, kWarpLanes> lanes);
};

// Besides bounds and alignment, which are always checked.
struct BlockChecks {
  bool races = true;     // and uninitialised shared memory, unfinished copies, missing fences
  bool requests = true;  // counts sectors and bank conflicts
  // Blocks and warps run in an order made of this number. 0: in theirs.
  uint32_t seed = 0;
};

class BlockRunner {
 public:
  BlockRunner(GlobalMemory& global, const BlockChecks& checks);

  // Runs all blocks, and adds what they did to the counters. Throws DeviceFault.
  void run(const Launch& launch, KernelCounters& counters);

  // ---- For the operations of kernels, on the running thread

  ThreadState& thread() const { return *static_cast<ThreadState*>(running); }
  ThreadState& thread(int index) { return threads_[static_cast<size_t>(index)]; }
  GlobalMemory& global() { return global_; }
  std::span<std::byte> shared() { return shared_of(thread().block_of_cluster); }
  std::span<std::byte> shared_of(int block_of_cluster) {
    return {shared_ + shared_begin(block_of_cluster), static_cast<size_t>(launch_->shape.shared_bytes)};
  }
  // Where a block's shared memory begins in that of the cluster, as `shadow` counts bytes.
  static size_t shared_begin(int block_of_cluster) { return static_cast<size_t>(block_of_cluster) * kMostSharedBytes; }
  size_t shared_begin() const { return shared_begin(thread().block_of_cluster); }
  int cluster() const { return launch_->shape.cluster; }
  WideProducts& products(int warp) { return warp_state(warp).products; }
  RequestLog& requests(int warp) { return warp_state(warp).requests; }
  SharedShadow& shadow() { return shadow_; }
  Arrivals& arrivals() { return arrivals_; }
  KernelCounters& counters() { return *counters_; }
  const BlockChecks& checks() const { return checks_; }
  int cluster_index() const { return cluster_index_; }
  // Whether all threads of one of the cluster's blocks have ended.
  bool has_ended(int block_of_cluster) const {
    return ended_[static_cast<size_t>(block_of_cluster)] == block_threads();
  }

  void wait_at_barrier(int id, int count, const Site& site);
  void sync_cluster(const Site& site);
  // Until wake() of the running thread.
  void sleep(const char* waits_for, const Site& site);
  void wake(int thread_index);
  // Waits for all lanes of the warp. The last lane that arrives runs the operation.
  void meet(const WarpOperation& operation, void* arguments, const Site& site);
  // Throws DeviceFault: of the running thread.
  [[noreturn]] void fault(const std::string& what) const;

 private:
  struct WarpState {
    int lanes = 0;         // that it has
    uint32_t ready = 0;    // lanes that do not wait
    uint32_t arrived = 0;  // lanes at `operation`
    const WarpOperation* operation = nullptr;
    std::array<void*, kWarpLanes> arguments{};
    WideProducts products;
    RequestLog requests;
  };
  struct Barrier {
    int count = 0;  // threads that it is for; 0: nobody waits
    std::vector<int> waiting;
  };
  using Barriers = std::array<Barrier, 16>;  // of a block

  WarpState& warp_state(int warp) { return warps_[static_cast<size_t>(warp)]; }
  int block_threads() const { return launch_->shape.threads; }
  int all_threads() const { return block_threads() * cluster(); }
  void check_shape() const;
  void run_thread(int i);
  void start_cluster(int x, int y, int z);
  void run_cluster();
  void run_warps();
  void end_cluster();
  void meet_at(Barrier& barrier, int count, const char* name);
  // Lanes of the warps that meet at a barrier come from one place, all of them. Returns a bit for each warp.
  BlockClocks::Warps check_warps(const std::vector<int>& threads);
  void suspend(ThreadState& thread, ThreadState::Doing doing, const char* waits_for);
  void abandon();
  std::string describe_waiting() const;

  GlobalMemory& global_;
  const BlockChecks checks_;
  std::mt19937 random_;
  const Launch* launch_ = nullptr;
  KernelCounters* counters_ = nullptr;
  int cluster_index_ = 0;
  SharedShadow shadow_;
  Arrivals arrivals_;
  std::vector<std::byte> shared_memory_;
  std::byte* shared_ = nullptr;  // in shared_memory_, aligned
  std::vector<ThreadState> threads_;
  std::vector<WarpState> warps_;
  std::vector<Barriers> barriers_;  // of each block
  Barrier cluster_barrier_;
  std::vector<int> ended_;  // threads of each block
  bool abandoned_ = false;
  std::exception_ptr failure_;
  FiberPool fibers_;
};

// The runner of the thread that runs.
inline BlockRunner& running_block() { return *static_cast<ThreadState*>(running)->runner; }

}  // namespace quire::cuda::emulated
