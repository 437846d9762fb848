// The accesses of a warp's lanes since its last barrier, to be matched to requests (counters.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/emulated/counters.h"

namespace quire::cuda::emulated {

// One lane's access; 0 bytes: none.
struct LaneAccess {
  uint64_t at = 0;
  uint32_t bytes = 0;
};

// Aligned sectors of 32 bytes that the accesses touch.
int sectors_of(std::span<const LaneAccess> lanes);
// Passes that banks of 4 bytes need beyond the fewest: lanes of 8 or 16 bytes go by halves or quarters of a warp, and lanes of a
// pass conflict if they want different words of a bank.
int bank_conflicts_of(std::span<const LaneAccess> lanes);

class RequestLog {
 public:
  enum class Kind : uint8_t { kGlobalRead, kGlobalWrite, kSharedRead, kSharedWrite };

  void add(Kind kind, int lane, uint64_t at, size_t bytes) {
    accesses_[static_cast<size_t>(kind)][static_cast<size_t>(lane)].push_back(at << kBytesBits | bytes);
  }
  // Adds the requests to the counters, and forgets them.
  void flush(KernelCounters& counters);
  void clear();

 private:
  static constexpr int kBytesBits = 12;  // an address has 48 bits, and 4 KiB are more than a thread accesses at once
  using Lanes = std::array<std::vector<uint64_t>, 32>;  // addresses << kBytesBits | bytes
  std::array<Lanes, 4> accesses_;
};

}  // namespace quire::cuda::emulated
