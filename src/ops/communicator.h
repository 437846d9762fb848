// Ranks: computing units that work on the same steps, each with a share of the weights' outputs and of the heads
// (tensor parallelism, as in Megatron-LM: arXiv 1909.08053, but without sums over ranks).
//
// Every rank runs the same operations on the same rows. What is shared, a rank computes for its units only: panels of a
// linear's outputs, or heads. gather() then gives every rank the others' results, as they are: nothing is added up, so
// the bits are those of one rank.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <span>

#include "ops/rows.h"

namespace quire {

// Units [begin, end) of a rank. Shares are contiguous, in the order of ranks, and their sizes differ by one at most; with
// fewer units than ranks, some are empty.
struct Share {
  int begin = 0, end = 0;

  int size() const { return end - begin; }
  bool operator==(const Share&) const = default;
};
constexpr Share share_of(int units, int rank, int ranks) {
  return {static_cast<int>(int64_t{units} * rank / ranks), static_cast<int>(int64_t{units} * (rank + 1) / ranks)};
}

// Columns that ranks share: unit u has columns [u * width, (u + 1) * width) of y, as far as y has them.
struct SharedColumns {
  Rows y;
  int units, width;

  // The columns of these units.
  Share columns_of(Share share) const {
    return {std::min(share.begin * width, y.cols), std::min(share.end * width, y.cols)};
  }
};

// What a rank has received.
struct GatherCounts {
  uint64_t gathers = 0;
  uint64_t bytes = 0;  // from other ranks
  // In gather(), borrow(), publish() and take_back(): with waiting for slower ranks, without helping them.
  uint64_t nanoseconds = 0;

  GatherCounts& operator+=(const GatherCounts& more) {
    gathers += more.gathers;
    bytes += more.bytes;
    nanoseconds += more.nanoseconds;
    return *this;
  }
  GatherCounts operator-(const GatherCounts& earlier) const {
    return {gathers - earlier.gathers, bytes - earlier.bytes, nanoseconds - earlier.nanoseconds};
  }
};

// One rank's connection to the others. All ranks must call the same functions in the same order, with the same shapes; each
// from one thread at a time.
class Communicator {
 public:
  Communicator(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  Share share(int units) const { return share_of(units, rank_, ranks_); }

  // Each rank has computed share() of the units of each part, in the first `rows` rows. Returns when this rank has those
  // of all ranks. At most kMostParts. Throws RankGone if another rank has given up.
  virtual void gather(std::span<const SharedColumns> parts, int rows) = 0;
  static constexpr size_t kMostParts = 16;

  // Whether all ranks are in this process, and can use the next three functions to write to rank 0's memory together.
  virtual bool share_memory() const { return false; }
  // Returns rank 0's `mine` to every rank, which may then write its part there: nobody still reads what was there before. Like
  // gather(), all three throw RankGone if another rank has given up.
  virtual const void* borrow(const void* mine) {
    assert(false && "no shared memory");
    return mine;
  }
  // Returns when all ranks have written their parts. A rank may read them until its next gather(), borrow() or take_back().
  virtual void publish() {}
  // All ranks call it before rank 0 writes to that memory alone. Returns when the others have stopped reading it.
  virtual void take_back() {}

  const GatherCounts& counts() const { return counts_; }  // since it exists

 protected:
  GatherCounts counts_;

 private:
  const int rank_, ranks_;
};

// Another rank has failed in this step, and says why. Not a std::exception: the error of the rank that failed is the one
// to report.
struct RankGone {};

}  // namespace quire
