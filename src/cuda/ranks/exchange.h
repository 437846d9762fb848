// How the devices of several ranks give each other what they have computed. There are two ways: NCCL (nccl_exchange.h), and
// through memory of the host (host_exchange.h), for emulated devices.
#pragma once

#include <cstddef>

namespace quire::cuda {

// All ranks call gather() in the same order, with the same sizes, each from one thread at a time.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // blocks: [ranks][bytes] in memory of the rank's device. The rank has block number `rank`, once its device's stream has done
  // what it has been given; this brings the others, in order with the stream. bytes: a multiple of 16. Throws RankGone
  // (ops/communicator.h) if another rank has given up, and Error (kResource) if the devices cannot be reached.
  virtual void gather(int rank, std::byte* blocks, size_t bytes) = 0;

  // A rank cannot go on: all that the others have on their streams ends, and their gather() throws until reset(), which is called
  // when no rank works.
  virtual void give_up() = 0;
  virtual void reset() = 0;
};

}  // namespace quire::cuda
