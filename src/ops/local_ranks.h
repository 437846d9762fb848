// Ranks that are threads of this process: they read each other's rows where they are.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/spin.h"
#include "base/team.h"
#include "ops/communicator.h"

namespace quire {

// A barrier for a fixed number of threads. They spin for about 50 microseconds and then sleep; or sleep at once, where others
// need their core.
class RankBarrier {
 public:
  RankBarrier(int ranks, bool spins) : ranks_(static_cast<uint32_t>(ranks)), spins_(spins) {}

  // Returns when all have called it. What they wrote before is then seen by all. Throws RankGone after give_up().
  void wait() {
    wait([] { return false; });
  }
  // help() is called while it waits, and says whether there was something to do.
  template <class Help>
  void wait(Help help);
  // Ends all waits, and all later ones until reset().
  void give_up();
  void reset();  // while nobody waits

 private:
  // Whether this was the last one to arrive. Otherwise `round` is the one to wait for.
  bool arrive(uint32_t& round);
  bool ended(uint32_t round) const { return rounds_.load(std::memory_order_acquire) != round; }
  void check() const {
    if (gone_.load(std::memory_order_acquire)) throw RankGone();
  }

  const uint32_t ranks_;
  const bool spins_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> rounds_{0};
  std::atomic<bool> gone_{false};
};

template <class Help>
void RankBarrier::wait(Help help) {
  uint32_t round = 0;
  if (!arrive(round)) {
    const auto look = [&] { return ended(round) || help(); };
    while (!ended(round)) {
      if (!(spins_ ? spin_until(look) : look())) rounds_.wait(round, std::memory_order_acquire);
    }
  }
  check();
}

// While a rank waits for slower ones, it runs tiles of their loops, if their teams take help.
class LocalRanks {
 public:
  // teams: of each rank; they copy what others have computed, and must outlive this.
  explicit LocalRanks(std::span<Team* const> teams);
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  Communicator& of(int rank) const;

  // A rank cannot go on with this step: the others' gather() throws RankGone until reset(), which is called when no rank
  // works.
  void give_up() { barrier_.give_up(); }
  void reset();

 private:
  class Rank;

  RankBarrier barrier_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace quire
