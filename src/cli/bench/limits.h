// How much an operation must read and multiply, and the least time this machine needs for it.
#pragma once

#include <array>
#include <chrono>
#include <span>
#include <string_view>
#include <vector>

#include "engine/dtype_names.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/step_profile.h"
#include "model/weights.h"
#include "ops/cpu/probe.h"

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

// Which multiply_unit()s something uses, indexed by Activations.
using MultiplyUnits = std::array<bool, 3>;
std::vector<Activations> listed(const MultiplyUnits& used);

struct Work {
  double bytes = 0;                          // weights, keys and values, each read once
  std::array<double, 3> multiply_adds = {};  // indexed by Activations: the type of the products

  double total_multiply_adds() const { return multiply_adds[0] + multiply_adds[1] + multiply_adds[2]; }
  Work& operator+=(const Work& other);
};

struct MachineRates {
  double bandwidth = 0;                      // bytes per second
  std::array<double, 3> multiply_adds = {};  // per second, indexed by Activations; 0: not measured
};

MachineRates median_of(std::span<const MachineRates> all);  // each rate by itself; `all` is not empty

// The longer of reading and multiplying, which can overlap. `rates` must include every unit that `work` uses.
double least_seconds(const Work& work, const MachineRates& rates);

// Work of a linear layer on `rows` rows with --activations `mode`.
Work linear_work(const PackedMatrix& weights, Activations mode, int rows);

// The unit that attention over a cache of this type multiplies with.
constexpr Activations attention_unit(KvType type) {
  return multiplies_bf16(type) ? Activations::kBf16 : Activations::kF32;
}

// Work of each operation of a step. Operations on activations alone have none, as activations stay in the CPU's caches.
std::array<Work, kStepOps> step_work(const ModelConfig& config, const Weights& weights, Activations mode, KvType kv,
                                     const Batch& batch);

// Runs the probes of ops/probe.h next to each measurement. Compute's team must outlive it.
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
