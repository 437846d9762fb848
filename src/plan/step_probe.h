// Measures what steps of a model's shape take on this machine, without the model: a few of its layers with random weights
// compute a few steps, and the times of each operation are carried over to all layers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ops/cpu/compute.h"
#include "plan/planned_model.h"
#include "plan/step_times.h"

namespace quire {

// How many layers and copies of them a probe computes with. Weights come from memory in the model, so they must in the
// probe: it takes turns with copies that exceed the caches together, or are as large as the model.
struct ProbeSize {
  int layers = 0;  // the first ones; at most half of the model's, but whole periods of layers that differ
  int copies = 0;
  int vocab = 0;  // rows of the output matrix
};
ProbeSize probe_size(const PlannedModel& model, size_t cache_bytes);

class StepProbe {
 public:
  // tuning_file: as EngineOptions::tuning_file; empty: the kernels' own loops. memory: bytes that it may take. Compute's
  // team and kernels must outlive it. Throws Error: the model's formats are not known (PlannedModel::formats), or even a
  // few layers do not fit.
  StepProbe(const Compute& compute, const PlannedModel& model, KvType kv, const std::string& tuning_file,
            size_t memory);
  ~StepProbe();

  // Each step `runs` times; the median of each operation counts. May be called again, to follow a machine whose speed
  // changes.
  StepTimes measure(int runs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
