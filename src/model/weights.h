// A model's weights: packed once at load, into one allocation.
#pragma once

#include <vector>

#include "base/memory.h"
#include "base/team.h"
#include "kernels/packed.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace quire {

struct Linear {
  PackedMatrix weight;
  std::vector<float> bias;  // [weight.rows], or empty

  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

struct LayerWeights {
  std::vector<float> attention_norm, ffn_norm;  // [hidden]
  Linear q, k, v, o, gate, up, down;
};

struct Weights {
  PackedMatrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;  // [hidden]
  Linear output;                   // [vocab, hidden]; shares the embedding's memory if tied
  LargeBuffer memory;              // of all matrices

  size_t decode_bytes() const;  // of the matrices that every token reads
  uint64_t parameters = 0;
  TensorType main_type = TensorType::F32;  // of most matrix elements
};

// Reads and packs all tensors, on all threads of the team. Throws Error naming file and tensor: missing, of the wrong
// shape, of a type that cannot be loaded, unknown to the model's family (ignoring it would silently run another model),
// or more than `memory` bytes in all.
Weights load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Team& team, size_t memory);

// Throws what load_weights would throw because of names, shapes and types, without reading any data.
void check_weights(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace quire
