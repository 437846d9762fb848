// A layer that predicts the target's next hidden state from its last one and the token that followed, so it drafts token
// after token without the target: an EAGLE head (eagle.h), or a model's own layer for multi-token prediction (mtp.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "model/decoder.h"

namespace quire {

// Row t pairs f[t], the target's hidden state at position t after its output norm, with x[t + 1], the token at position
// t + 1. It predicts f[t + 1], and with the output matrix the logits of token t + 2:
//
//   z = join * [norm(embedding of x[t + 1]); norm(f[t])]
//   predicted f[t + 1] = output norm of layer(z), whose attention sees rows 0 .. t
//
// config: joined_input and one layer. weights: without an output norm or matrices of its own, those of the target are used.
struct FeatureLayer {
  ModelConfig config;
  Weights weights;
  std::string identity;  // for the keys of persisted pages
};

// What a FeatureLayer takes once read: known from its file's header.
struct FeatureTotals {
  ModelConfig config;
  uint64_t bytes = 0;   // matrices as packed, vectors in float32
  PackedMatrix output;  // its own output matrix without its data; no rows: it uses the target's
};

// The keys and values of row t lie in position t of the target's pages, in a further layer of its cache layout:
// cache_layout(target, type, {&layer.config}). So a prefix that the target finds in the cache serves this layer as well.
// Row t also depends on token t + 1, which the last token of a shared page does not know; it is then the row of another
// text, which can cost a draft's acceptance and nothing else.
class FeaturePredictor {
 public:
  // The target's configuration and weights, the cache, and the backend, which has all of them, must outlive it. Predictors
  // of several ranks share a layer. first_layer: this one's in the cache layout. limits.max_hidden: 0 becomes max_rows.
  FeaturePredictor(std::shared_ptr<FeatureLayer> layer, const ModelConfig& target, const Weights& target_weights,
                   CacheMemory& cache, Backend& backend, Activations activations, DecoderLimits limits,
                   int first_layer);

  FeaturePredictor(const FeaturePredictor&) = delete;  // the decoder refers to the layer
  FeaturePredictor& operator=(const FeaturePredictor&) = delete;

  // Whose output matrix it was made for.
  const Weights& output_weights() const;

  // Row t of a sequence has position t and token x[t + 1]. Row i reads f[t] from row feature_rows[i] of
  // features [.., hidden]: the target's or predicted ones, in the backend's memory. Any number of sequences and rows each, so a prompt, the rows to redo after a verification and the
  // next row of a chain are all one call. output: that of output_weights(), or some of its rows. Returns logits as
  // Decoder::forward does.
  std::span<float> forward(const Batch& batch, const Rows& features, std::span<const int32_t> feature_rows,
                           const Linear& output);
  // The predicted features of the rows that wanted their hidden state, in row order; valid until the next call.
  Rows predicted() const { return decoder_.hidden(); }

  // What the constructor allocates, besides what the backend allocates for operation_limits().
  static size_t memory_bytes(const ModelConfig& config, const DecoderLimits& limits);
  static OperationLimits operation_limits(const ModelConfig& config, const DecoderLimits& limits);

 private:
  void join(const Rows& features, std::span<const int32_t> feature_rows);

  std::shared_ptr<const FeatureLayer> layer_;
  const ModelConfig& target_;
  const Weights& target_weights_;
  Decoder decoder_;
  Operations* ops_;  // the decoder's
  Rows joined_, z_;  // [rows, 2 * hidden], [rows, hidden]
  BackendMemory memory_;
  std::vector<int32_t> ids_;
  std::vector<Row> rows_;
};

}  // namespace quire
