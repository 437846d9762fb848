// The parts of a layer, and the output. A part of a layer reads the residual stream (mlp_block: x) through a norm, and adds
// or writes its result to a target.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "model/adapter/adapter.h"
#include "model/step_profile.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "ops/backend.h"
#include "ops/cache_memory.h"

namespace quire {

// Rows of a step that an adapter changes.
struct AdaptedRows {
  const Adapter* adapter;
  int row, rows;
};

// What the blocks of a step share.
struct Step {
  const ModelConfig& config;
  Operations& ops;
  CacheMemory& cache;
  Workspace& work;
  std::span<const std::vector<AttentionSpan>> spans;  // per group of the cache layout
  std::span<const StateSpan> states;                  // for recurrent layers
  std::span<const int32_t> drafted;                   // rows whose changes of states are kept
  int rows;
  int first_layer;  // where the model's layers begin in the cache layout
  StepProfile* profile;
  std::span<const AdaptedRows> adapted;
  std::vector<LowRankProduct>& products;  // memory for lists

  // Attributes the time since the last call to `op`.
  void done(StepOp op) const {
    if (!profile) return;
    ops.finish();
    profile->mark(op);
  }
};

// target = w x, for the normalised x: a linear on its own. Its time counts as that of `op`.
void project(const Step& step, const Rows& x, const NormView& norm, const Linear& w, const Target& target, StepOp op);
// Adds what adapters change of linears of the normalised x, at most kMostChanged, once the linears' own results are there.
struct AdaptedLinear {
  const Linear* w;
  Target target;  // if it accumulates: of at most config.hidden columns
};
void adapt(const Step& step, const Rows& x, const NormView& norm, std::initializer_list<AdaptedLinear> linears);
// Whether adapt() would change any of the results.
bool adapts(const Step& step, const Linear& w);
// A norm as kernels take it.
NormView view(const Norm& norm, const NormWeights& weights);

void attention_block(const Step& step, int layer, const Attention& spec, const AttentionWeights& w,
                     const NormView& norm, const Target& target);
void mla_block(const Step& step, int layer, const Mla& spec, const MlaWeights& w, const NormView& norm,
               const Target& target);
void short_conv_block(const Step& step, int layer, const ShortConv& spec, const ShortConvWeights& w,
                      const NormView& norm, const Target& target);
void gated_delta_block(const Step& step, int layer, const GatedDelta& spec, const GatedDeltaWeights& w,
                       const NormView& norm, const Target& target);
void mamba2_block(const Step& step, int layer, const Mamba2& spec, const Mamba2Weights& w, const NormView& norm,
                  const Target& target);
// Keeps the drafted rows of what changes a layer's states, in the order of its update. advance_states() applies kept rows to
// the states of step.states, whose row numbers index the kept rows.
void keep_updates(const Step& step, int layer, std::initializer_list<Rows> parts);
void advance_states(const Step& step, int layer, const ShortConv& spec, const ShortConvWeights& w);
void advance_states(const Step& step, int layer, const GatedDelta& spec, const GatedDeltaWeights& w);
void advance_states(const Step& step, int layer, const Mamba2& spec, const Mamba2Weights& w);
void mlp_block(const Step& step, const Mlp& spec, const MlpWeights& w, const Rows& x, const NormView& norm,
               const Target& target);
void moe_block(const Step& step, const Moe& spec, const MoeWeights& w, const NormView& norm, const Target& target);

// Per-layer embeddings (ModelConfig::per_layer_dim): those of all layers, from the tokens in work.ids and their embeddings
// in work.x; and the block that they gate.
void per_layer_embeddings(const Step& step, const Weights& w);
// norm(V (gelu(U x) * e[layer])) into the target.
void per_layer_block(const Step& step, int layer, const LayerWeights& w, const Rows& x, const Target& target);

// Alternating updates (ModelConfig::altup): x becomes the streams, the streams become x again; and a layer.
void altup_begin(const Step& step, const Weights& w);
void altup_end(const Step& step, const Weights& w);
void altup_layer(const Step& step, int layer, const LayerSpec& spec, const LayerWeights& w);

// logits [rows][matrix.weight.rows] of prepared, normalised hidden states, with the model's scale and soft cap. matrix:
// the output matrix, or some of its rows.
void output_logits(Operations& ops, const ModelConfig& config, const Inputs& hidden, const Linear& matrix, int rows,
                   float* logits);

}  // namespace quire
