// Runs the blocks of a launch, one at a time: its threads are fibers, which run until they must wait for one another.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

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

class BlockRunner;

// A thread of the running block.
struct ThreadState : ThreadPlace {
  enum class Doing : uint8_t { kRunning, kWaitingForWarp, kWaitingAtBarrier, kEnded };

  BlockRunner* runner = nullptr;
  Doing doing = Doing::kRunning;
  const char* waits_for = "";  // if it waits: the name of the operation
  Site site;                   // of the last barrier or operation of its warp
  bool waited = true;          // for earlier launches
  AsyncCopies copies;

  int lane() const { return thread % kWarpLanes; }
  int warp() const { return thread / kWarpLanes; }
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
  ThreadState& thread(int i) { return threads_[static_cast<size_t>(i)]; }
  GlobalMemory& global() { return global_; }
  std::span<std::byte> shared() { return {shared_, static_cast<size_t>(launch_->shape.shared_bytes)}; }
  WideProducts& products(int warp) { return warp_state(warp).products; }
  RequestLog& requests(int warp) { return warp_state(warp).requests; }
  SharedShadow& shadow() { return shadow_; }
  KernelCounters& counters() { return *counters_; }
  const BlockChecks& checks() const { return checks_; }
  int block_index() const { return block_index_; }

  void wait_at_barrier(int id, int count, const Site& site);
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

  WarpState& warp_state(int warp) { return warps_[static_cast<size_t>(warp)]; }
  void check_shape() const;
  void run_thread(int i);
  void start_block(int x, int y, int z);
  void run_block();
  void run_warps();
  void end_block();
  // Lanes of the warps that meet at a barrier come from one place, all of them. Returns a bit for each warp.
  uint32_t check_warps(const std::vector<int>& threads);
  void suspend(ThreadState& thread, ThreadState::Doing doing, const char* waits_for);
  void abandon();
  std::string describe_waiting() const;

  GlobalMemory& global_;
  const BlockChecks checks_;
  std::mt19937 random_;
  const Launch* launch_ = nullptr;
  KernelCounters* counters_ = nullptr;
  int block_index_ = 0;
  SharedShadow shadow_;
  std::vector<std::byte> shared_memory_;
  std::byte* shared_ = nullptr;  // in shared_memory_, aligned
  std::vector<ThreadState> threads_;
  std::vector<WarpState> warps_;
  std::array<Barrier, 16> barriers_;
  int ended_ = 0;  // threads
  bool abandoned_ = false;
  std::exception_ptr failure_;
  FiberPool fibers_;
};

// The runner of the thread that runs.
inline BlockRunner& running_block() { return *static_cast<ThreadState*>(running)->runner; }

}  // namespace quire::cuda::emulated
