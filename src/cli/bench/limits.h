// What an operation has to read and multiply, and how long this machine needs for that at best.
#pragma once

#include <array>
#include <chrono>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/names.h"
#include "kernels/probe.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/step_profile.h"
#include "model/weights.h"

namespace quire {

template <class Body>
double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of one thing measured several times; not empty when asked.
struct Samples {
  std::vector<double> values;

  void add(double value) { values.push_back(value); }
  double median() const;  // of an even number, the mean of the two in the middle
  double low() const;
  double high() const;
};

struct Work {
  double bytes = 0;                          // weights, keys and values, each read once
  std::array<double, 3> multiply_adds = {};  // by Activations: by what is multiplied

  double total_multiply_adds() const { return multiply_adds[0] + multiply_adds[1] + multiply_adds[2]; }
  Work& operator+=(const Work& other);
};

struct MachineRates {
  double bandwidth = 0;                      // bytes a second
  std::array<double, 3> multiply_adds = {};  // a second, by Activations; 0: not measured
};

MachineRates median_of(std::span<const MachineRates> all);  // of each rate; not empty

// The longer of reading and multiplying, which can go on at the same time. `work` multiplies only what was measured.
double least_seconds(const Work& work, const MachineRates& rates);

// Of a linear of `rows` rows under --activations `mode`.
Work linear_work(const PackedMatrix& weights, Activations mode, int rows);

// What kernels multiply in attention over a cache of this type: the unit that `--activations` of the same name uses.
constexpr Activations attention_unit(KvType type) {
  return type == KvType::kBf16 ? Activations::kBf16 : Activations::kF32;
}

// Of each operation of a step; those that only touch activations, which stay in the caches, have none.
std::array<Work, kStepOps> step_work(const ModelConfig& config, const Weights& weights, Activations mode, KvType kv,
                                     const Batch& batch);

// The probes of src/kernels/probe.h, run again and again beside what is measured. Compute's team outlives it.
class MachineProbe {
 public:
  // For the units that are multiplied with.
  MachineProbe(const Compute& compute, std::vector<Activations> units);
  MachineRates measure();

 private:
  Compute compute_;
  std::vector<Activations> units_;
  ReadProbe reads_;
};

}  // namespace quire
