// What the models of a process share: threads, a backend, and a budget of memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/team.h"
#include "engine/memory_budget.h"
#include "engine/memory_plan.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/model_text.h"
#include "model/weights.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/tuning.h"
#include "quire/engine.h"

namespace quire {

struct Runtime {
  // Takes threads, kernels, device, tensor_parallel_size, gpu_layers, gpu_memory_utilization, memory_bytes and processes of the
  // options. Throws Error: an option is invalid, the CPU lacks the kernels, or less memory is free than asked for.
  explicit Runtime(const EngineOptions& options);

  Team team;
  Tuning tuning;  // the kernels' loops, for all models; only the thread that has the team's turn reads or changes them
  CpuBackend cpu;
  std::unique_ptr<Backend> device;  // computes in place of the CPU, for models that are loaded afterwards; null: none
  std::vector<std::unique_ptr<Backend>> more_devices;  // those of the ranks after the first
  MemoryBudget memory;       // weights, caches, activations and all else that is allocated from now on; on each device
  MemoryBudget host_memory;  // with a device that has memory of its own: the host's, for layers of the CPU

  const bool one_rank;  // EngineOptions::processes: other ranks are processes of their own
  const int rank;       // this process's; 0 without others

  Backend& backend() { return device ? *device : cpu; }
  std::vector<Backend*> devices() const;  // by rank; empty: the CPU computes
  // What plan_memory() must know of it, for a model that may take so many bytes.
  Machine machine(size_t memory);
};

// What plan_memory() must know of the machine that Runtime(options) would be, without starting its threads. Opens the device, if
// the options name one.
Machine this_machine(const EngineOptions& options);

// Memory of this process that is not backed by files.
size_t anonymous_memory();

// A checkpoint, ready to compute. A target and its draft model share one Runtime.
struct Model {
  ModelConfig config;
  ModelText text;
  Weights weights;
};

// Without its weights (load_weights()). Throws Error as its parts do.
Model read_model(const Checkpoint& checkpoint);

// Everything the model's results depend on besides its input: a hash of the weights, and the definitions in force by
// name. Reads the whole checkpoint.
std::string model_identity(const Checkpoint& checkpoint, const ModelConfig& config, std::string_view activations);

}  // namespace quire
