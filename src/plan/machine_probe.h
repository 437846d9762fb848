// The limits of this machine, measured now.
#pragma once

#include <vector>

#include "ops/cpu/compute.h"
#include "ops/cpu/probe.h"
#include "plan/work.h"

namespace quire {

// Runs the probes of ops/cpu/probe.h, again next to each measurement that is compared with them. Compute's team must outlive
// it.
class MachineProbe {
 public:
  // `units`: the multiply units to probe.
  MachineProbe(const Compute& compute, std::vector<Activations> units);
  MachineRates measure();

 private:
  Compute compute_;
  std::vector<Activations> units_;
  ReadProbe reads_;
};

}  // namespace quire
