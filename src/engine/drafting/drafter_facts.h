// What the files of drafters say before any weight is read: which drafters there will be, and how large they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/drafting/drafter_kinds.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/decoder.h"
#include "ops/backend.h"
#include "quire/engine.h"

namespace quire {

struct DrafterFacts {
  NamedDrafters named;
  // With --speculative auto: why the target's own layer for multi-token prediction cannot be used, which nobody has asked
  // for by name. Then named.model has none.
  std::string problem;
  uint64_t corpus_bytes = 0;  // size of the corpus file
  // Of named.model:
  std::optional<ModelConfig> layers;  // those that follow the target's in the cache
  uint64_t weight_bytes = 0;          // weights that it does not share with the target
  PackedMatrix output;                // the output matrix that it multiplies with, without its data
  int heads = 0;                      // Medusa's

  void drop_model() {
    named.model.reset();
    layers.reset();
    weight_bytes = 0;
  }
};

// target_output: the target's output matrix. Reads headers only. Throws Error: a file of a drafter is missing, or cannot be
// used with this target.
DrafterFacts read_drafter_facts(const EngineOptions& options, const Checkpoint& checkpoint, const ModelConfig& target,
                                const PackedMatrix& target_output);

// The memory of the drafter that computes: its weights, and what a network takes besides. 0 without one.
size_t draft_weight_bytes(const DrafterFacts& facts, const EngineOptions& options, const ModelConfig& target);
size_t draft_network_bytes(const DrafterFacts& facts, const ModelConfig& target, const DecoderLimits& limits,
                           const OperationsBytes& operations_bytes);

// Of the tokens that drafters choose from.
int drafted_vocabulary(const EngineOptions& options, const ModelConfig& target);
// The layers that --speculative early-exit drafts with. Throws Error: the model cannot end after these.
int first_layers(const EngineOptions& options, const ModelConfig& target);
// Throws Error: the model of --draft-model cannot draft for the target.
void check_small_model(const EngineOptions& options, const ModelConfig& draft, const ModelConfig& target);

}  // namespace quire
