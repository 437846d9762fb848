// A model's weights in memory: packed once at load, in one place.
#pragma once

#include <vector>

#include "base/memory.h"
#include "base/team.h"
#include "kernels/packed.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/families.h"

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
  Linear output;                   // [vocab, hidden]; the embedding's memory where tied
  LargeBuffer memory;              // what all the matrices point into

  size_t decode_bytes() const;  // of matrices that are read for every token
  uint64_t parameters = 0;
  TensorType main_type = TensorType::F32;  // of most matrix elements
};

// Reads and packs all tensors, on all threads of the team. Throws Error naming file and tensor: missing, wrong shape, a
// type that cannot be loaded, a tensor that the family does not know (the model would silently be another one), more
// than `memory` bytes.
Weights load_weights(const Checkpoint& checkpoint, const Family& family, const ModelConfig& config, Team& team,
                     size_t memory);

}  // namespace quire
