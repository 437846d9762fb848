#include "cuda/emulated/block.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

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
    : global_(global),
      checks_(checks),
      random_(checks.seed),
      shared_memory_(kMostSharedBytes + kSharedAlignment),
      fibers_([this](int i) { run_thread(i); }) {
  void* start = shared_memory_.data();
  size_t space = shared_memory_.size();
  shared_ = static_cast<std::byte*>(std::align(kSharedAlignment, kMostSharedBytes, start, space));
}

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
}

void BlockRunner::run(const Launch& launch, KernelCounters& counters) {
  launch_ = &launch;
  counters_ = &counters;
  check_shape();
  const LaunchShape& shape = launch.shape;
  const auto count = static_cast<size_t>(shape.threads);
  fibers_.reserve(shape.threads);
  if (threads_.size() < count) threads_.resize(count);
  warps_.resize((count + kWarpLanes - 1) / kWarpLanes);
  global_.start_launch();
  ++counters.launches;
  counters.threads = std::max(counters.threads, shape.threads);
  counters.shared_bytes = std::max(counters.shared_bytes, shape.shared_bytes);
  std::vector<int> order;  // empty: theirs
  const int blocks = shape.x * shape.y * shape.z;
  if (checks_.seed) {
    order.resize(static_cast<size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
  }
  for (int i = 0; i < blocks; ++i) {
    block_index_ = order.empty() ? i : order[static_cast<size_t>(i)];
    start_block(block_index_ % shape.x, block_index_ / shape.x % shape.y, block_index_ / shape.x / shape.y);
    run_block();
  }
  counters.first_read += global_.first_read();
  counters.first_written += global_.first_written();
}

void BlockRunner::start_block(int x, int y, int z) {
  const LaunchShape& shape = launch_->shape;
  ++counters_->blocks;
  for (int t = 0; t < shape.threads; ++t) {
    ThreadState& state = thread(t);
    static_cast<ThreadPlace&>(state) = {t, shape.threads, {x, y, z}, {shape.x, shape.y, shape.z}};
    state.runner = this;
    state.doing = ThreadState::Doing::kRunning;
    state.site = {};
    state.waited = !launch_->entry->waits;
    state.copies.reset();
  }
  for (size_t w = 0; w < warps_.size(); ++w) {
    WarpState& warp = warps_[w];
    warp.lanes = std::min(kWarpLanes, shape.threads - static_cast<int>(w) * kWarpLanes);
    warp.ready = static_cast<uint32_t>((uint64_t{1} << warp.lanes) - 1);
    warp.arrived = 0;
    warp.products.reset();
    warp.requests.clear();
  }
  for (Barrier& barrier : barriers_) {
    barrier.count = 0;
    barrier.waiting.clear();
  }
  std::memset(shared_, static_cast<int>(kPoison), static_cast<size_t>(shape.shared_bytes));
  if (checks_.races) shadow_.reset(static_cast<size_t>(shape.shared_bytes));
  ended_ = 0;
  abandoned_ = false;
  failure_ = nullptr;
}

void BlockRunner::run_block() {
  run_warps();
  if (!failure_ && ended_ < launch_->shape.threads) failure_ = std::make_exception_ptr(DeviceFault(describe_waiting()));
  if (failure_) {
    abandon();
    std::rethrow_exception(failure_);
  }
  end_block();
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
void BlockRunner::end_block() {
  for (size_t w = 0; w < warps_.size(); ++w) {
    WarpState& warp = warps_[w];
    if (checks_.requests) warp.requests.flush(*counters_);
    running = &threads_[w * kWarpLanes];
    if (warp.products.pending() > 0) fault("it ended without wait_products() for its products");
    const WarpState& first_of_group = warps_[w / 4 * 4];
    if (warp.products.history() != first_of_group.products.history())
      fault("its warp has not started the same products as the other warps of its warpgroup");
  }
  running = nullptr;
}

// The body of fiber i: one thread of one block.
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
  ++ended_;
}

// Ends the threads that wait, by an exception, so that their stacks are empty.
void BlockRunner::abandon() {
  abandoned_ = true;
  for (int i = 0; i < launch_->shape.threads; ++i) {
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
  fibers_.suspend(state.thread, next);
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
  Barrier& barrier = barriers_[static_cast<size_t>(id)];
  if (barrier.count == 0) barrier.count = count;
  if (barrier.count != count)
    fault("barrier " + std::to_string(id) + " for " + std::to_string(count) + " threads, where others wait for " +
          std::to_string(barrier.count));
  barrier.waiting.push_back(state.thread);
  if (static_cast<int>(barrier.waiting.size()) < count) {
    suspend(state, ThreadState::Doing::kWaitingAtBarrier, id == 0 ? "sync_block()" : "sync_part()");
    return;
  }
  const uint32_t warps = check_warps(barrier.waiting);
  for (const int i : barrier.waiting) warp_state(i / kWarpLanes).ready |= 1u << i % kWarpLanes;
  for (size_t w = 0; w < warps_.size(); ++w) {
    if (checks_.requests && (warps >> w & 1)) warps_[w].requests.flush(*counters_);
  }
  if (checks_.races) shadow_.clocks.sync_warps(warps);
  barrier.waiting.clear();
  barrier.count = 0;
}

uint32_t BlockRunner::check_warps(const std::vector<int>& threads) {
  std::array<int, BlockClocks::kMostWarps> lanes{};
  uint32_t warps = 0;
  for (const int i : threads) {
    const ThreadState &state = thread(i), &first = thread(i / kWarpLanes * kWarpLanes);
    ++lanes[static_cast<size_t>(state.warp())];
    warps |= 1u << state.warp();
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
  for (int i = 0; i < launch_->shape.threads; ++i) {
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
