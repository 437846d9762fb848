// The activations of a step, allocated once in the memory of the backend.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "ops/backend.h"

namespace quire {

struct DecoderLimits {
  int max_rows;         // in a batch
  int max_logits;       // rows of a batch that want logits
  int max_positions;    // tokens of a sequence
  int max_hidden = 0;   // rows of a batch that want hidden states
  int max_drafted = 0;  // drafted rows of a batch (Span::drafts)
  int max_rank = 0;     // of adapters; 0: there are none
};

// Each member has room for the largest layer; blocks take the columns that they need.
struct Workspace {
  // The backend must outlive it. Throws Error (kResource).
  Workspace(Backend& backend, const ModelConfig& config, const DecoderLimits& limits);
  static size_t memory_bytes(const ModelConfig& config, const DecoderLimits& limits);

  // From now on blocks work on the rows of the step from `row` on, and keep updates from the drafted row `drafted` on: x and
  // updates begin there. The other members belong to the part of a step that is being computed.
  void begin_at(int row, int drafted);

  Rows x;                                // the residual stream [rows, hidden]
  Rows branch;                           // a block's result before it is added [rows, hidden]
  Rows projections;                      // a mixer's: queries, keys, values, gates
  Rows attended;                         // what the heads saw
  Rows queries, latent;                  // latent attention's: per head before absorption, and of rank q_rank
  Rows inner;                            // between the matrices of an MLP
  Rows normed;                           // inputs of a mixture of experts [rows, hidden]
  Rows scores;                           // what routers say
  Rows shared;                           // the shared MLP's result, before it is weighted [rows, hidden]
  std::vector<Rows> streams, predicted;  // for alternating updates [rows, hidden]
  Rows coefficients;                     // for the streams
  Rows up;                               // beside `inner`, where gates and ups are not multiplied at once
  Rows per_layer, per_layer_table;       // embeddings of all layers [rows, layers * per_layer_dim], and from the table
  Rows low_rank;                         // between the two matrices of adapters' changes [products' rows, max_rank]
  Rows undecomposed;          // results that adapters change by a factor (DoRA) before they are added [rows, hidden]
  Rows last;                  // rows that want logits [logits, hidden]
  Rows logits;                // dense
  Rows hidden;                // normalised, for rows that want it
  Rows pooled;                // inputs and results of the linears after pooling [2, widest]
  std::vector<Rows> cos_sin;  // for each rope
  std::vector<Rows> updates;  // by layer: what changes its states, of drafted rows [drafted, update_size()]
  Rows q_scales;              // one row: for each row of the step, if a layer scales queries by their position
  Vector slopes;              // for heads with ALiBi
  std::vector<int32_t> ids;   // the host's: tokens, positions or rows

 private:
  size_t carve(const ModelConfig& config, const DecoderLimits& limits, std::byte* memory);
  Workspace() = default;
  int row_ = 0, drafted_ = 0;  // of begin_at()
  BackendMemory memory_;
};

// The largest work that the model's operations get.
OperationLimits operation_limits(const ModelConfig& config, const DecoderLimits& limits);

}  // namespace quire
