// Devices of one process that compute the same steps, each its share (ops/communicator.h).
#pragma once

#include "ops/communicator.h"

namespace quire {

class Backend;

// Their connections, for one model. Each rank's backend is used by one thread at a time, and all ranks call the same operations in
// the same order, with the same shapes.
class DeviceRanks {
 public:
  virtual ~DeviceRanks() = default;

  virtual int size() const = 0;
  // Has its device's memory. Its operations compute the rank's share and gather the others'; they throw RankGone where another
  // rank has given up. Must not outlive this.
  virtual Backend& backend(int rank) = 0;
  // What a rank has received; while no rank works.
  virtual const GatherCounts& received(int rank) const = 0;

  // A rank cannot go on with this step: the others' operations throw RankGone until reset(), which is called when no rank works.
  virtual void give_up() = 0;
  virtual void reset() = 0;
};

}  // namespace quire
