#include "cuda/emulated/block.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "cuda/emulated/fault.h"

namespace quire::cuda::emulated {

constinit thread_local ThreadPlace* running = nullptr;

namespace {

// Unwinds a thread of a block whose other thread found a mistake.
struct AbandonedBlock {};

constexpr size_t kSharedAlignment = 1024;
constexpr int kMostBlocksYZ = 65535;
constexpr auto kPoison = std::byte{0xFF};  // NaN in every float type

std::string file_name(const Site& site) {
  const std::string path = site.file;
  return path.substr(path.rfind('/') + 1) + ":" + std::to_string(site.line);
}

}  // namespace

BlockRunner::BlockRunner(GlobalMemory& global, const BlockChecks& checks)
    : global_(global), checks_(checks), random_(checks.seed), arrivals_(*this), fibers_([this](int i) {
        run_thread(i);
      }) {}

void BlockRunner::check_shape() const {
  const LaunchShape& shape = launch_->shape;
  const std::string name = std::string("kernel ") + launch_->entry->name;
  const int most = std::min(launch_->entry->threads, kMostThreads);
  if (shape.threads < 1 || shape.threads > most)
    throw DeviceFault(name + ": a block of " + std::to_string(shape.threads) + " threads; it can have 1 to " +
                      std::to_string(most));
  if (shape.shared_bytes < 0 || shape.shared_bytes > kMostSharedBytes)
    throw DeviceFault(name + ": " + std::to_string(shape.shared_bytes) + " bytes of shared memory; a block can have " +
                      std::to_string(kMostSharedBytes));
  if (shape.x < 1 || shape.y < 1 || shape.z < 1 || shape.y > kMostBlocksYZ || shape.z > kMostBlocksYZ)
    throw DeviceFault(name + ": a grid of " + std::to_string(shape.x) + " x " + std::to_string(shape.y) + " x " +
                      std::to_string(shape.z) + " blocks; it can have 1 to " + std::to_string(kMostBlocksYZ) +
                      " in y and z");
  if (int64_t{shape.x} * shape.y * shape.z > std::numeric_limits<int>::max())
    throw DeviceFault(name + ": more blocks than the emulated device can count");
  if (shape.cluster < 1 || shape.cluster > kMostCluster || shape.x % shape.cluster != 0)
    throw DeviceFault(name + ": clusters of " + std::to_string(shape.cluster) + " blocks in a grid of " +
                      std::to_string(shape.x) + " in x; a cluster has 1 to " + std::to_string(kMostCluster) +
                      " blocks, and the grid whole clusters");
  const bool whole_warps = shape.threads % kWarpLanes == 0;
  if (shape.cluster > 1 &&
      (!whole_warps || std::cmp_greater(shape.cluster * shape.threads / kWarpLanes, BlockClocks::kMostWarps)))
    throw DeviceFault(name + ": a cluster of " + std::to_string(shape.cluster) + " blocks of " +
                      std::to_string(shape.threads) + " threads; the emulated device takes whole warps, " +
                      std::to_string(BlockClocks::kMostWarps) + " of all blocks together");
}

void BlockRunner::run(const Launch& launch, KernelCounters& counters) {
  launch_ = &launch;
  counters_ = &counters;
  check_shape();
  const LaunchShape& shape = launch.shape;
  const auto count = static_cast<size_t>(all_threads());
  fibers_.reserve(all_threads());
  if (threads_.size() < count) threads_.resize(count);
  warps_.resize((count + kWarpLanes - 1) / kWarpLanes);
  barriers_.resize(static_cast<size_t>(shape.cluster));
  if (const size_t bytes = shared_begin(shape.cluster); shared_memory_.size() < bytes + kSharedAlignment) {
    shared_memory_.resize(bytes + kSharedAlignment);
    void* start = shared_memory_.data();
    size_t space = shared_memory_.size();
    shared_ = static_cast<std::byte*>(std::align(kSharedAlignment, bytes, start, space));
  }
  global_.start_launch();
  ++counters.launches;
  counters.threads = std::max(counters.threads, shape.threads);
  counters.shared_bytes = std::max(counters.shared_bytes, shape.shared_bytes);
  std::vector<int> order;  // empty: theirs
  const int in_x = shape.x / shape.cluster, clusters = in_x * shape.y * shape.z;
  if (checks_.seed) {
    order.resize(static_cast<size_t>(clusters));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
  }
  for (int i = 0; i < clusters; ++i) {
    cluster_index_ = order.empty() ? i : order[static_cast<size_t>(i)];
    start_cluster(cluster_index_ % in_x * shape.cluster, cluster_index_ / in_x % shape.y,
                  cluster_index_ / in_x / shape.y);
    run_cluster();
  }
  counters.first_read += global_.first_read();
  counters.first_written += global_.first_written();
}

void BlockRunner::start_cluster(int x, int y, int z) {
  const LaunchShape& shape = launch_->shape;
  counters_->blocks += static_cast<uint64_t>(shape.cluster);
  for (int i = 0; i < all_threads(); ++i) {
    ThreadState& state = thread(i);
    const int block = i / shape.threads;
    static_cast<ThreadPlace&>(state) = {.thread = i % shape.threads,
                                        .threads = shape.threads,
                                        .block = {x + block, y, z},
                                        .blocks = {shape.x, shape.y, shape.z},
                                        .block_of_cluster = block,
                                        .cluster = shape.cluster};
    state.index = i;
    state.runner = this;
    state.doing = ThreadState::Doing::kRunning;
    state.site = {};
    state.waited = !launch_->entry->waits;
    state.copies.reset();
  }
  for (size_t w = 0; w < warps_.size(); ++w) {
    WarpState& warp = warps_[w];
    warp.lanes = std::min(kWarpLanes, all_threads() - static_cast<int>(w) * kWarpLanes);
    warp.ready = static_cast<uint32_t>((uint64_t{1} << warp.lanes) - 1);
    warp.arrived = 0;
    warp.products.reset();
    warp.requests.clear();
  }
  const auto empty = [](Barrier& barrier) {
    barrier.count = 0;
    barrier.waiting.clear();
  };
  for (Barriers& of_block : barriers_) std::ranges::for_each(of_block, empty);
  empty(cluster_barrier_);
  for (int b = 0; b < shape.cluster; ++b)
    std::memset(shared_of(b).data(), static_cast<int>(kPoison), shared_of(b).size());
  if (checks_.races) shadow_.reset(shared_begin(shape.cluster - 1) + static_cast<size_t>(shape.shared_bytes));
  arrivals_.reset();
  ended_.assign(static_cast<size_t>(shape.cluster), 0);
  abandoned_ = false;
  failure_ = nullptr;
}

void BlockRunner::run_cluster() {
  run_warps();
  const bool all_ended = std::ranges::all_of(ended_, [this](int threads) { return threads == block_threads(); });
  if (!failure_ && !all_ended) failure_ = std::make_exception_ptr(DeviceFault(describe_waiting()));
  if (failure_) {
    abandon();
    std::rethrow_exception(failure_);
  }
  end_cluster();
}

// Until all have ended, or none can go on.
void BlockRunner::run_warps() {
  const size_t first = checks_.seed ? random_() % warps_.size() : 0;
  bool progress = true;
  while (progress && !failure_) {
    progress = false;
    for (size_t i = 0; i < warps_.size() && !failure_; ++i) {
      const size_t w = (first + i) % warps_.size();
      while (warps_[w].ready && !failure_) {
        progress = true;
        const int t = static_cast<int>(w) * kWarpLanes + std::countr_zero(warps_[w].ready);
        running = &thread(t);
        fibers_.resume(t);
      }
    }
  }
  running = nullptr;
}

// What only shows when all threads have ended.
void BlockRunner::end_cluster() {
  for (size_t w = 0; w < warps_.size(); ++w) {
    WarpState& warp = warps_[w];
    if (checks_.requests) warp.requests.flush(*counters_);
    const ThreadState& first = threads_[w * kWarpLanes];
    running = &threads_[w * kWarpLanes];
    if (warp.products.pending() > 0) fault("it ended without wait_products() for its products");
    const WarpState& first_of_group = warps_[w - static_cast<size_t>(first.thread / kWarpLanes % 4)];
    if (warp.products.history() != first_of_group.products.history())
      fault("its warp has not started the same products as the other warps of its warpgroup");
  }
  running = nullptr;
}

// The body of fiber i: one thread of the cluster.
void BlockRunner::run_thread(int i) {
  ThreadState& state = thread(i);
  try {
    reinterpret_cast<void (*)(const std::byte*)>(const_cast<void*>(launch_->entry->function))(launch_->kernel.data());
    if (!state.waited) fault("it ended without wait_previous(), which kernels with kWaits must call");
  } catch (const AbandonedBlock&) {
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
  state.doing = ThreadState::Doing::kEnded;
  warp_state(state.warp()).ready &= ~(1u << state.lane());
  ++ended_[static_cast<size_t>(state.block_of_cluster)];
}

// Ends the threads that wait, by an exception, so that their stacks are empty.
void BlockRunner::abandon() {
  abandoned_ = true;
  for (int i = 0; i < all_threads(); ++i) {
    const ThreadState& state = thread(i);
    // A thread that has not started has nothing to unwind.
    if (state.doing == ThreadState::Doing::kWaitingForWarp || state.doing == ThreadState::Doing::kWaitingAtBarrier) {
      running = &thread(i);
      fibers_.resume(i);
    }
  }
  running = nullptr;
}

void BlockRunner::suspend(ThreadState& state, ThreadState::Doing doing, const char* waits_for) {
  state.doing = doing;
  state.waits_for = waits_for;
  WarpState& warp = warp_state(state.warp());
  warp.ready &= ~(1u << state.lane());
  int next = FiberPool::kNone;
  if (warp.ready) {  // the next lane of the warp, without a way round
    next = state.warp() * kWarpLanes + std::countr_zero(warp.ready);
    running = &thread(next);
  }
  fibers_.suspend(state.index, next);
  if (abandoned_) throw AbandonedBlock();
  state.doing = ThreadState::Doing::kRunning;
}

void BlockRunner::wait_at_barrier(int id, int count, const Site& site) {
  ThreadState& state = thread();
  state.site = site;
  if (id < 0 || id > 15) fault("barrier " + std::to_string(id) + " does not exist; there are 1 to 15");
  if (id == 0 && count != state.threads) fault("barrier 0 is that of sync_block(); parts of a block have 1 to 15");
  if (id > 0 && (count < kWarpLanes || count % kWarpLanes != 0 || count > state.threads))
    fault("barrier " + std::to_string(id) + " for " + std::to_string(count) +
          " threads; it takes whole warps of a block of " + std::to_string(state.threads));
  Barrier& barrier = barriers_[static_cast<size_t>(state.block_of_cluster)][static_cast<size_t>(id)];
  if (barrier.count == 0) barrier.count = count;
  if (barrier.count != count)
    fault("barrier " + std::to_string(id) + " for " + std::to_string(count) + " threads, where others wait for " +
          std::to_string(barrier.count));
  meet_at(barrier, count, id == 0 ? "sync_block()" : "sync_part()");
}

void BlockRunner::sync_cluster(const Site& site) {
  thread().site = site;
  meet_at(cluster_barrier_, all_threads(), "sync_cluster()");
}

void BlockRunner::meet_at(Barrier& barrier, int count, const char* name) {
  ThreadState& state = thread();
  barrier.waiting.push_back(state.index);
  if (static_cast<int>(barrier.waiting.size()) < count)
    return suspend(state, ThreadState::Doing::kWaitingAtBarrier, name);
  const BlockClocks::Warps warps = check_warps(barrier.waiting);
  for (const int i : barrier.waiting) wake(i);
  for (size_t w = 0; w < warps_.size(); ++w) {
    if (checks_.requests && (warps >> w & 1)) warps_[w].requests.flush(*counters_);
  }
  if (checks_.races) shadow_.clocks.sync_warps(warps);
  barrier.waiting.clear();
  barrier.count = 0;
}

void BlockRunner::sleep(const char* waits_for, const Site& site) {
  thread().site = site;
  suspend(thread(), ThreadState::Doing::kWaitingAtBarrier, waits_for);
}

void BlockRunner::wake(int thread_index) {
  warp_state(thread_index / kWarpLanes).ready |= 1u << thread_index % kWarpLanes;
}

BlockClocks::Warps BlockRunner::check_warps(const std::vector<int>& threads) {
  std::array<int, BlockClocks::kMostWarps> lanes{};
  BlockClocks::Warps warps = 0;
  for (const int i : threads) {
    const ThreadState &state = thread(i), &first = thread(i / kWarpLanes * kWarpLanes);
    ++lanes[static_cast<size_t>(state.warp())];
    warps |= BlockClocks::Warps{1} << state.warp();
    if (state.site.line != first.site.line)
      fault("lanes of warp " + std::to_string(state.warp()) + " wait at a barrier in different places, " +
            file_name(first.site) + " and " + file_name(state.site));
  }
  for (size_t w = 0; w < warps_.size(); ++w) {
    if (lanes[w] != 0 && lanes[w] != warps_[w].lanes)
      fault("only " + std::to_string(lanes[w]) + " lanes of warp " + std::to_string(w) + " have come to a barrier");
  }
  return warps;
}

void BlockRunner::meet(const WarpOperation& operation, void* arguments, const Site& site) {
  ThreadState& state = thread();
  state.site = site;
  WarpState& warp = warp_state(state.warp());
  if (warp.arrived == 0) {
    warp.operation = &operation;
  } else if (warp.operation != &operation) {
    fault(std::string(operation.name) + " where other lanes of its warp wait for " + warp.operation->name);
  }
  warp.arguments[static_cast<size_t>(state.lane())] = arguments;
  warp.arrived |= 1u << state.lane();
  const auto all = static_cast<uint32_t>((uint64_t{1} << warp.lanes) - 1);
  if (warp.arrived != all) {
    suspend(state, ThreadState::Doing::kWaitingForWarp, operation.name);
    return;
  }
  warp.arrived = 0;
  warp.ready = all;
  if (checks_.requests) warp.requests.flush(*counters_);
  operation.function(*this, state.warp(), warp.arguments);
}

void BlockRunner::fault(const std::string& what) const {
  const ThreadState& state = thread();
  std::string place = std::string("kernel ") + launch_->entry->name + ", block (" + std::to_string(state.block[0]) +
                      ", " + std::to_string(state.block[1]) + ", " + std::to_string(state.block[2]) + "), thread " +
                      std::to_string(state.thread);
  if (state.site.line > 0) place += ", at or after " + file_name(state.site);
  throw DeviceFault(place + ": " + what);
}

std::string BlockRunner::describe_waiting() const {
  // Threads by what they do: "Thread 3 and 28 more: waiting for sync_block() at scale.h:41.".
  std::map<std::string, std::pair<int, int>> groups;  // the first thread, how many
  for (int i = 0; i < all_threads(); ++i) {
    const ThreadState& state = threads_[static_cast<size_t>(i)];
    const std::string doing = state.doing == ThreadState::Doing::kEnded
                                  ? "ended"
                                  : std::string("waiting for ") + state.waits_for + " at " + file_name(state.site);
    ++groups.try_emplace(doing, i, 0).first->second.second;
  }
  const ThreadState& first = threads_[0];
  std::string text = std::string("kernel ") + launch_->entry->name + ", block (" + std::to_string(first.block[0]) +
                     ", " + std::to_string(first.block[1]) + ", " + std::to_string(first.block[2]) +
                     "): a deadlock, for its threads wait for each other.";
  for (const auto& [doing, group] : groups) {
    text += " Thread " + std::to_string(group.first);
    if (group.second > 1) text += " and " + std::to_string(group.second - 1) + " more";
    text += ": " + doing + ".";
  }
  return text;
}

}  // namespace quire::cuda::emulated
