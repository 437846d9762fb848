// A model's weights: packed once at load, into one allocation of the backend or one file that it shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/team.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/packing/load_meter.h"
#include "model/packing/pack_file.h"
#include "ops/backend_memory.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/ranks/shares.h"
#include "ops/stage_link.h"

namespace quire {

class ExpertStore;  // model/packing/expert_store.h

struct NormWeights {
  Vector weight, bias;  // empty: the norm has none
};

struct AttentionWeights {
  Linear q, k, v, o;  // k and v: none if the layer reads another's cache
  Linear gate;        // [heads * value_dim, hidden]
  NormWeights q_norm, k_norm, inner;
  Vector sinks;  // [heads]
};

struct MlaWeights {
  Linear q;          // [heads * (nope_dim + rope_dim), hidden or q_rank]
  Linear q_latent;   // [q_rank, hidden]
  Linear kv_latent;  // [kv_rank + rope_dim, hidden]
  NormWeights q_norm, kv_norm;
  std::vector<Linear> keys;    // for each head: [kv_rank, nope_dim], its key projection transposed
  std::vector<Linear> values;  // for each head: [value_dim, kv_rank]
  Linear o;                    // [hidden, heads * value_dim]
};

struct ShortConvWeights {
  Linear in;            // [B; C; x]
  Vector weight, bias;  // the convolution's: [width][channels], [channels]
  Linear out;
};

struct GatedDeltaWeights {
  Linear q, k, v;
  Linear gate;         // [value_heads * value_dim, hidden]
  Linear decay, beta;  // [value_heads, hidden]
  Vector conv;         // [width][channels], of q, k and v
  Vector factor;       // [value_heads], of the decay; negative
  Vector bias;         // [value_heads], of the decay
  NormWeights norm;    // [value_dim]
  Linear out;
};

struct Mamba2Weights {
  Linear in;               // [gate; x; B; C; step]
  Vector conv, conv_bias;  // [width][channels], [channels], of x, B and C
  Vector a, d;             // [heads]; a < 0
  Vector bias;             // [heads], of the step
  NormWeights norm;
  Linear out;
};

struct MlpWeights : ExpertLinears {
  NormWeights inner;
};

struct MoeWeights {
  Linear router;      // [experts, hidden]
  Vector correction;  // [experts]
  Vector scales;      // [experts]
  NormWeights router_in, shared_in, shared_out, experts_out;
  std::vector<ExpertLinears> experts;
  ExpertSource* source = nullptr;  // of the experts' matrices, whose data is null then; nullptr: they are in memory
  int first_expert = 0;            // the number that the first has in the source
  bool on_host = false;            // experts, correction and scales are in memory of WeightOptions::host_experts
  MlpWeights shared;
  Linear shared_gate;  // [1, hidden]
};

struct LayerWeights {
  NormWeights mixer_in, mixer_out, ffn_in, ffn_out;
  AttentionWeights attention;
  MlaWeights mla;
  ShortConvWeights short_conv;
  GatedDeltaWeights gated_delta;
  Mamba2Weights mamba2;
  MlpWeights mlp;
  MoeWeights moe;
  Linear per_layer_gate, per_layer_out;  // [per_layer_dim, hidden], [hidden, per_layer_dim]
  NormWeights per_layer_norm;
  Vector output_scale;               // [1]
  Linear laurel_left, laurel_right;  // [laurel_rank, hidden], [hidden, laurel_rank]
  NormWeights laurel_norm;
  Linear altup_router, altup_predict, altup_correct;  // [n, hidden], [n * n, n], [n, n] for n streams
  NormWeights altup_norm;
  Vector altup_scale;  // [hidden]
};

struct PooledWeights {
  Linear linear;
  NormWeights norm;
};

struct Weights {
  Linear embedding;  // [vocab, hidden]; no bias
  Linear positions;  // [max_positions, hidden]
  Linear segments;   // [segments, hidden]
  NormWeights embedding_norm, output_norm;
  Linear join;                                           // for joined inputs: [hidden, 2 * hidden]
  NormWeights join_embedding, join_features;             // [hidden]
  Linear per_layer_embedding;                            // [vocab, layers * per_layer_dim]
  Linear per_layer_projection;                           // [layers * per_layer_dim, hidden]
  NormWeights per_layer_norm;                            // [per_layer_dim]
  std::vector<Linear> altup_projections, altup_unembed;  // for all streams but the first: [hidden, hidden]
  std::vector<LayerWeights> layers;
  std::vector<PooledWeights> pooled;
  Linear output;         // [vocab, hidden]; shares the embedding's memory if tied
  BackendMemory memory;  // has all matrices, unless they are mapped
  std::optional<MappedPack> mapped;
  std::shared_ptr<ExpertStore> experts;  // the source of all layers; null: all experts are in memory
  size_t matrix_bytes = 0;               // of all matrices in memory, with the slots of `experts`
  BackendMemory host_memory;             // as memory and mapped: of the experts on the host
  std::optional<MappedPack> host_mapped;
  size_t host_bytes = 0;  // of their matrices

  uint64_t parameters = 0;
  uint64_t decode_bytes = 0;  // what a token reads of the matrices: of experts, only the chosen ones
  uint64_t expert_bytes = 0;  // the chosen experts' part of that
  std::string main_type;      // what most matrix elements have: a type, or a quantization method
};

// Which matrices are loaded: those of some layers, with the embeddings if the first layer is one of them, and the output if the
// last is. The others have a shape but no data. Vectors are small and are always loaded. Of the matrices that linears read, one of
// several ranks may load only the panels that it computes with (ops/ranks/shares.h).
struct LoadedLayers {
  LayerRange layers;       // {}: all
  bool embedding = false;  // in any case
  RankNumber rank = {};
};

// The experts of some layers that another backend computes (ops/offload/host_experts.h): their matrices and biases, and the
// vectors that choose them, are in its memory.
struct HostExperts {
  Backend* backend = nullptr;  // must outlive the weights
  LayerRange layers;           // {}: none
  size_t memory = 0;           // most bytes of their matrices
};

struct WeightOptions {
  size_t memory = 0;            // most bytes of all matrices together
  size_t expert_slots = 0;      // experts in memory at a time (expert_store.h); 0: all
  std::string pack_cache = {};  // a folder of pack files; empty: none
  PackFile::Warn warn = {};     // about that folder, and about scales that are not used
  OnLoad report = {};           // called on this thread
  LoadedLayers part = {};
  HostExperts host_experts = {};  // not together with expert_slots
};

// Reads and packs all tensors, on all threads of the team, or maps what an earlier start has packed (pack_file.h). Throws
// Error naming file and tensor: missing, of the wrong shape, of a type that cannot be loaded, unknown to the model's
// family (ignoring it would silently run another model), or more than `memory` bytes in all.
//
// config: the model's, or that of its predicting_layer().
//
// With expert_slots, experts go to a file (pack_experts.h) and stay there: fewer slots than a row's experts are slow, not
// wrong. The backend must have reads_experts().
//
// Takes as much memory as the packed matrices, and buffers of 16 rows for each thread: a checkpoint is mapped, not read.
//
// The backend, whose memory the weights are in, must outlive them.
Weights load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend, Team& team,
                     const WeightOptions& options);

// The shapes of all weights, without data. Throws Error as check_weights().
Weights read_weight_shapes(const Checkpoint& checkpoint, const ModelConfig& config);

// The experts of all layers.
struct ExpertTotals {
  int experts = 0;        // 0: the model has none
  int used = 0;           // most that a row chooses in a layer
  size_t bytes = 0;       // their matrices as packed
  size_t slot_bytes = 0;  // what a slot for any of them takes (expert_store.h)
};

// What a model's weights take once loaded.
struct WeightTotals {
  uint64_t parameters = 0;
  uint64_t bytes = 0;         // matrices as packed, vectors in float32
  uint64_t matrix_bytes = 0;  // the matrices alone
  std::string main_type;      // as Weights::main_type
  ExpertTotals experts;       // part of the bytes
  // matrix_bytes by place: in each layer; before the first layer, where the embedding is; and after the last.
  std::vector<uint64_t> layer_bytes;
  uint64_t input_bytes = 0, embedding_bytes = 0, output_bytes = 0;
  // Of each layer's experts: what goes to memory of HostExperts::backend, matrices and vectors.
  std::vector<uint64_t> expert_bytes;
  PackedMatrix output;  // the output matrix without its data; no rows: the model has none
};

// Throws what load_weights would throw because of names, shapes and types, without reading the data. The bytes are exactly
// those that load_weights takes.
WeightTotals check_weights(const Checkpoint& checkpoint, const ModelConfig& config);
// Bytes of the matrices that the rank with most of them loads.
uint64_t largest_rank_bytes(const Checkpoint& checkpoint, const ModelConfig& config, int ranks);

}  // namespace quire
