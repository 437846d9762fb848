// Work that several ranks do at once, for tests.
#pragma once

#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ops/communicator.h"

namespace quire::testing {

// Calls work(rank) for all ranks, each on a thread of its own. Returns what the first that failed has thrown; ranks that had to give
// up because of it (RankGone) do not count. give_up(): has the others give up.
template <class Work, class GiveUp>
std::exception_ptr run_in_ranks(int ranks, const Work& work, const GiveUp& give_up) {
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        work(rank);
      } catch (const RankGone&) {
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        give_up();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return first;
}

}  // namespace quire::testing
