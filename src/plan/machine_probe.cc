#include "plan/machine_probe.h"

#include <utility>

namespace quire {

MachineProbe::MachineProbe(const Compute& compute, std::vector<Activations> units)
    : compute_(compute), units_(std::move(units)), reads_(compute.team) {}

MachineRates MachineProbe::measure() {
  MachineRates rates;
  rates.bandwidth = reads_.bandwidth();
  for (const Activations unit : units_)
    rates.multiply_adds[static_cast<size_t>(unit)] =
        multiply_rate({compute_.kernels, compute_.team, kernel_form(unit)}, 3);
  return rates;
}

}  // namespace quire
