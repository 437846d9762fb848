// A fixed team of threads that runs loops over tiles.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace quire {

// for_tiles(n, body) calls body(tile, thread) once for each tile in [0, n); thread is in [0, size()). The caller works
// as thread 0; the call returns when all tiles are done. Each thread owns a contiguous share of the tiles, so that it
// works on memory that it touched first, and steals from other shares when its own is done. So which thread runs a tile
// is not determined, and a tile's result must not depend on it. A loop of one tile wakes no thread.
//
// The caller waits only for threads that have begun a tile: a thread that the operating system does not schedule delays
// a loop by at most the tile it is working on.
//
// Waiting threads spin for about 50 microseconds, longer than the gaps between the loops of a step, and then sleep.
// Bodies must not throw and must not call for_tiles. A team runs one loop at a time. Threads that share it take turns: one
// that holds no Turn takes one for each of its loops.
//
// A team that takes help lets other threads run tiles of its loops, with thread = size(), so bodies of its loops must not use the
// thread's number.
class Team {
 public:
  // While it lives, only this thread runs loops; others wait, first come, first served. For work of many loops, whose gaps
  // are too short to hand the team over. May be nested.
  class Turn {
   public:
    explicit Turn(Team& team);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Team* team_ = nullptr;  // nullptr: this thread had the turn already
  };

  // At least 1. begin: called first by each thread that the team starts. Throws Error if the operating system cannot start so many.
  explicit Team(int threads, const std::function<void()>& begin = {}, bool takes_help = false);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }
  // Whether some thread has the turn now.
  bool taken() const { return drawn_.load(std::memory_order_relaxed) != served_.load(std::memory_order_relaxed); }

  template <class Body>
  void for_tiles(int tiles, Body&& body) {
    if (tiles <= 1 || (size_ == 1 && !takes_help_)) {
      for (int tile = 0; tile < tiles; ++tile) body(tile, 0);
      return;
    }
    const Turn turn(*this);
    run(
        tiles,
        [](void* context, int tile, int thread) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(tile, thread);
        },
        &body);
  }

  // The number of the loop that is under way; 0: none is, or this team takes no help.
  uint32_t loop() const {
    const uint64_t gate = gate_.load(std::memory_order_relaxed);
    return takes_help_ && is_open(gate) ? number(gate) : 0;
  }
  // Runs tiles of this loop until all have begun. Does nothing if it has ended. For threads that are not the team's own.
  void help(uint32_t loop);

 private:
  using Call = void (*)(void* context, int tile, int thread);
  struct alignas(64) Share {
    std::atomic<int> next{0};
    int end = 0;
  };

  void run(int tiles, Call call, void* context);
  void work(int thread);
  void serve(int thread);
  void stop();
  void join(int thread, uint32_t loop);
  static constexpr uint32_t kAnyLoop = 0;

  // The gate's upper half: how often the loop was opened or closed, odd while it is open. Lower half: threads inside.
  static constexpr uint64_t kGateStep = uint64_t{1} << 32;
  static constexpr bool is_open(uint64_t gate) { return (gate & kGateStep) != 0; }
  static constexpr uint32_t inside(uint64_t gate) { return static_cast<uint32_t>(gate); }
  static constexpr uint32_t number(uint64_t gate) { return static_cast<uint32_t>(gate >> 32); }

  const int size_;
  const bool takes_help_;
  // Turns: the ticket that the next one draws, the ticket whose turn it is, and the thread that has it.
  std::atomic<uint32_t> drawn_{0}, served_{0};
  std::atomic<const void*> holder_{nullptr};
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::unique_ptr<Share[]> shares_;
  alignas(64) std::atomic<uint64_t> gate_{0};
  alignas(64) std::atomic<uint32_t> loops_{0};  // sleeping threads wait for it to change
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace quire
