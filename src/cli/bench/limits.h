// Samples of measurements, and the limits that they are compared with.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "kernels/packed.h"
#include "plan/machine_probe.h"
#include "plan/work.h"

namespace quire {

template <class Body>
double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Repeated measurements of one quantity. The statistics need at least one.
struct Samples {
  std::vector<double> values;

  void add(double value) { values.push_back(value); }
  double median() const;  // for an even number, the mean of the middle two
  double low() const;
  double high() const;
};

MachineRates median_of(std::span<const MachineRates> all);  // of each rate by itself; `all` is not empty

// Work of a linear layer on `rows` rows with --activations `mode`.
Work linear_work(const PackedMatrix& weights, Activations mode, int rows);

}  // namespace quire
