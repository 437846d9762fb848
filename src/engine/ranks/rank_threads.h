// A thread for each rank, or each stage, of this process.
#pragma once

#include <exception>
#include <utility>
#include <vector>

#include "base/team.h"
#include "engine/ranks/placement.h"
#include "ops/communicator.h"

namespace quire {

class RankThreads {
 public:
  // Throws Error: the operating system cannot start so many.
  RankThreads(int ranks, Placement placement)
      : placement_(std::move(placement)), mains_(ranks), errors_(static_cast<size_t>(ranks)) {}

  int size() const { return mains_.size(); }

  // Calls work(rank) for all ranks at once; the caller is one of them. If a rank fails, give_up() has to let the waiting ones
  // throw RankGone. Returns what the first one that failed has thrown; nullptr: none has.
  template <class Work, class GiveUp>
  std::exception_ptr run(const Work& work, const GiveUp& give_up) {
    mains_.for_tiles(size(), [&](int rank, int) {
      const MemoryNodes::Visit on_its_nodes = placement_.visit(rank);
      try {
        work(rank);
      } catch (const RankGone&) {
      } catch (...) {
        errors_[static_cast<size_t>(rank)] = std::current_exception();
        give_up();
      }
    });
    std::exception_ptr first;
    for (std::exception_ptr& error : errors_) {
      if (std::exception_ptr one = std::exchange(error, nullptr); one && !first) first = std::move(one);
    }
    return first;
  }

 private:
  const Placement placement_;
  Team mains_;
  std::vector<std::exception_ptr> errors_;  // of the last run(), by rank
};

}  // namespace quire
