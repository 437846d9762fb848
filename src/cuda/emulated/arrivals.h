// Barriers of arrivals (mbarrier) in the shared memory of a cluster's blocks, and copies of boxes (TMA), which arrive at them.
//
// A barrier's phase ends when all arrivals that it counts and all bytes that it expects have come; the next one begins at once.
// Copies are done when the phase that they belong to ends, as late as is allowed: until then their bytes are NaN, and an access
// of them is a mistake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "cuda/emulated/clocks.h"
#include "cuda/emulated/machine.h"

namespace quire::cuda::emulated {

class BlockRunner;

// Of the running cluster. Functions are called on the running thread. Offsets: SharedShadow's.
class Arrivals {
 public:
  explicit Arrivals(BlockRunner& runner) : runner_(runner) {}

  void reset() { barriers_.clear(); }
  void init(size_t offset, int count);
  // bytes: that the phase expects beyond those of earlier calls.
  void arrive(size_t offset, int bytes);
  // Returns when the phase of this parity has ended: the one that runs, or the one before.
  void wait(size_t offset, int parity, const Site& site);
  // Bytes that come to shared memory at `to`, and then at the barrier.
  void start_copy(size_t offset, size_t to, std::vector<std::byte> bytes);

 private:
  struct Copy {
    size_t to;
    std::vector<std::byte> bytes;
  };
  struct Barrier {
    int count;      // arrivals of a phase
    int missing;    // of this phase
    int64_t bytes;  // that are expected and have not come; less than 0: copies were faster
    uint32_t phase = 0;
    // What was done before it was made, before the arrivals of this phase, and before those of phases that have ended.
    BlockClocks::Past made{}, arriving{}, ended{};
    std::vector<Copy> copies;    // of this phase
    std::vector<int> waiting{};  // threads
  };

  Barrier& find(size_t offset);
  void end_phase_if_complete(Barrier& barrier);

  BlockRunner& runner_;
  std::map<size_t, Barrier> barriers_;
};

}  // namespace quire::cuda::emulated
