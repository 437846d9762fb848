// How much memory a model takes and what for, known from the headers of its files before any weight is read.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/cache_size.h"
#include "engine/drafting/drafter_facts.h"
#include "engine/memory_budget.h"
#include "kernels/types.h"
#include "model/adapter/adapter.h"
#include "model/adapter/control_vector.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/stages/micro_batches.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "ops/backend.h"
#include "ops/cache_layout.h"
#include "ops/stage_link.h"
#include "quire/engine.h"

namespace quire {

// What a model's files say of its size.
struct ModelFacts {
  ModelConfig config;
  WeightTotals weights;
  DrafterFacts drafters;
  AdapterFacts adapters;       // of all that are loaded with the model: the largest rank, and the sum of bytes
  size_t control_vectors = 0;  // bytes
  size_t unplanned = 0;        // bytes that loading was seen to take beyond the plan
  uint64_t rank_bytes = 0;     // of devices that are ranks: the matrices of the one that has most
};
// Reads headers only: milliseconds for a model of any size. Throws Error if the configuration of the model or of a
// drafter, or the names, shapes and types of their tensors, cannot be loaded.
ModelFacts read_model_facts(const Checkpoint& checkpoint, const EngineOptions& options);
ModelFacts read_model_facts(const EngineOptions& options);  // of options.model

// What the plan must know of the machine.
struct Machine {
  size_t memory = 0;                               // bytes that the model may take
  int threads = 1;                                 // size of the team
  Activations activations = Activations::kInt8x2;  // those that its kernels take by default
  OperationsBytes operations_bytes = {};           // empty: those of the CPU's backend with so many threads
  bool reads_experts = true;                       // Backend::reads_experts()
  bool own_memory = false;                         // `memory` is a device's: what the host keeps does not count
  bool one_rank = false;                           // ranks are processes, and this is the machine of one of them:
  int rank = 0;                                    // this one
  // Next to a device with memory of its own, if the CPU has some of the layers or experts: bytes of the host that these may
  // take, and the CPU's default.
  size_t host_memory = 0;
  Activations host_activations = Activations::kInt8x2;
};

// One of several stages of a model. With MemoryPlan::shares_layers() there are two: the CPU's and the device's.
struct StagePlan {
  LayerRange layers;
  size_t weights = 0;     // bytes of its matrices; without host_expert_layers()
  size_t cache = 0;       // bytes of its part of the cache
  size_t sent_bytes = 0;  // that it sends for each token
};

// What is in the host's memory if the CPU has some of the layers, or of the experts, and a device the others.
struct HostPlan {
  size_t budget = 0;   // all bytes that there are
  size_t weights = 0;  // of the CPU's layers: matrices as packed; of all layers: vectors in float32. And its experts
  size_t activations = 0;  // with sampling, and rows on their way to the device and back
  size_t cache = 0;
  size_t other = 0;  // as the rows of MemoryPlan: control vectors, page store, vocabulary, requests
  Activations activation_type = Activations::kF32;

  size_t total() const { return weights + activations + cache + other; }
};

struct MemoryRow {
  std::string_view what;
  size_t bytes;
  std::string note;  // may be empty
};

struct MemoryPlan {
  size_t budget = 0;   // all bytes that there are
  size_t weights = 0;  // matrices as packed, vectors in float32; without experts if these have slots
  size_t experts = 0;  // slots for experts, of which the others are read when rows choose them; 0: all are in `weights`
  size_t activations = 0;  // with logits and sampling
  size_t page_store = 0;   // for units evicted from the cache
  size_t drafters = 0;     // their weights and activations, and what they remember of texts
  size_t adapters = 0;     // LoRA adapters, with those that may be loaded later
  size_t control_vectors = 0;
  size_t vocabulary = 0;  // tokenizer and chat template: an estimate
  size_t requests = 0;    // the host program's, for requests and streams: an estimate, unless the program reserves more
  size_t unplanned = 0;   // ModelFacts::unplanned
  CacheSize cache;        // what the others leave, or less

  // Of weights, drafters and vocabulary: what loading allocates besides the target's matrices.
  size_t loaded = 0;

  bool own_memory = false;  // Machine::own_memory: page store, vocabulary and requests are not part of the sum

  // What it was computed for.
  int ranks = 1;                  // in this process; each has activations and a cache of its own; weights are one copy
  std::vector<StagePlan> stages;  // of the whole model, in their order; empty: one computes all layers
  MicroBatchLimits micro_batches;
  // Devices that share the work as ranks: the plan is that of each, so `ranks` is 1. Otherwise 1.
  int devices = 1;
  int gpu_layers = 0;      // layers of a device with memory of its own, the last ones; 0: there is none
  int cpu_moe_layers = 0;  // the model's first ones, whose experts the CPU has; 0: it has none of the device's layers
  std::optional<HostPlan> host;    // the CPU has other layers, or experts; bytes of this plan are the device's alone
  bool drafter_embedding = false;  // the last stage has a drafter that reads the embedding
  CacheLayout cached;  // what all of them keep; if ranks are processes or devices, what the one with most keeps
  Activations activation_type = Activations::kF32;
  CacheLayout layout;
  DecoderLimits limits{};  // max_positions is the longest sequence that fits
  std::string weight_type;
  int expert_slots = 0, all_experts = 0;
  size_t drafted_tokens = 0;  // that text drafters may look at: TextDrafters::limit()

  std::vector<LayerRange> stage_layers() const;
  // Layers of the device whose experts the CPU has.
  LayerRange host_expert_layers() const {
    return cpu_moe_layers == 0 ? LayerRange() : LayerRange{stages.empty() ? 0 : stages[0].layers.end, cpu_moe_layers};
  }
  bool shares_layers() const { return host && !stages.empty(); }  // the CPU and a device
  size_t without_cache() const {
    return weights + experts + activations + drafters + adapters + control_vectors +
           (own_memory ? 0 : page_store + vocabulary + requests + unplanned);
  }
  size_t total() const { return without_cache() + cache.bytes; }
  // For people: weights, KV cache, activations, ..., with what the numbers mean. Their sum is total().
  std::vector<MemoryRow> rows() const;
};

// A pure function. The cache gets what the other rows leave of the machine's memory, as size_cache() says; max_logits as in
// LoadedModel. With EngineOptions::expert_bytes 0, experts get slots only if they do not fit beside a cache for one sequence:
// then the cache gets at most a quarter of what the other rows leave, or what such a sequence needs, and the slots get the
// rest. Throws Error if the model does not fit, with the numbers and what to change, or an option has a value that
// is not supported.
MemoryPlan plan_memory(const ModelFacts& facts, const EngineOptions& options, const Machine& machine,
                       int max_logits = 0);

// What sampling allocates for its threads.
size_t sampling_bytes(int threads, int vocab);

// Whether there is memory for adapters that are loaded later.
bool loads_adapters(const EngineOptions& options);

// The sum of the options' control vectors. Throws Error: a file cannot be read or does not fit the model.
ControlVectors read_control_vectors(const EngineOptions& options, const ModelConfig& config);

// What the options come to for this model: a bidirectional one computes prompts whole, and has no prefix cache.
EngineOptions options_for(EngineOptions options, const ModelConfig& config);

}  // namespace quire
