#include "cli/bench/limits.h"

#include <algorithm>

namespace quire {

double Samples::median() const {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t size = sorted.size();
  return (sorted[(size - 1) / 2] + sorted[size / 2]) / 2;
}
double Samples::low() const { return *std::min_element(values.begin(), values.end()); }
double Samples::high() const { return *std::max_element(values.begin(), values.end()); }

MachineRates median_of(std::span<const MachineRates> all) {
  const auto median = [&](auto value) {
    Samples samples;
    for (const MachineRates& rates : all) samples.add(value(rates));
    return samples.median();
  };
  MachineRates rates{median([](const MachineRates& r) { return r.bandwidth; }), {}};
  for (size_t i = 0; i < rates.multiply_adds.size(); ++i)
    rates.multiply_adds[i] = median([i](const MachineRates& r) { return r.multiply_adds[i]; });
  return rates;
}

Work linear_work(const PackedMatrix& weights, Activations mode, int rows) {
  Work work{.bytes = static_cast<double>(weights.bytes()), .multiply_adds = {}};
  work.multiply_adds[static_cast<size_t>(multiply_unit(activations_for(mode, weights.format)))] =
      static_cast<double>(weights.rows) * weights.cols * rows;
  return work;
}

}  // namespace quire
