// EAGLE (arXiv 2401.15077): one decoder layer that predicts the target's next hidden state from its last one and the token
// that followed, so it drafts token after token without the target.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/team.h"
#include "model/decoder.h"
#include "speculate/chains.h"

namespace quire {

// Row t pairs f[t], the target's hidden state at position t after its output norm, with x[t + 1], the token at position
// t + 1. It predicts f[t + 1], and with the target's output matrix the logits of token t + 2:
//
//   z  = fc * [embedding of x[t + 1]; f[t]]
//   z += attention(norm(z)) over rows 0 .. t;  z += mlp(norm(z))
//   predicted f[t + 1] = the target's output norm of z
struct EagleHead {
  ModelConfig config;    // of its layer, with what surrounds the target's layers
  Linear fc;             // [hidden, 2 * hidden]
  Weights weights;       // of the layer
  std::string identity;  // of all weights, for the keys of persisted pages
};
// path: a safetensors file, or a folder with one. Throws Error naming file and tensor, or the target if it has no layer
// that such a head could be like.
EagleHead read_eagle(const std::filesystem::path& path, const ModelConfig& target, Team& team);

// The keys and values of row t lie in position t of the target's pages, in a further layer of its cache layout:
// cache_layout(target, type, {&head.config}). So a prefix that the target finds in the cache serves the head as well. Row t
// also depends on token t + 1, which the last token of a shared page does not know; it is then the row of another text,
// which can cost a draft's acceptance and nothing else.
class Eagle : public ChainModel {
 public:
  // The target's configuration and weights, the cache, and what `compute` names must outlive it. first_layer: the head's
  // in the cache layout. limits.max_hidden: 0 becomes max_rows.
  Eagle(EagleHead head, const ModelConfig& target, const Weights& target_weights, CacheMemory& cache,
        const Compute& compute, DecoderLimits limits, int first_layer);

  Eagle(const Eagle&) = delete;  // the decoder refers to the head
  Eagle& operator=(const Eagle&) = delete;

  // Row t of a sequence has position t and token x[t + 1]. features [rows, hidden]: f[t] of each row of the batch, the
  // target's or predicted. Any number of sequences and rows each, so a prompt, the rows to redo after a verification and the
  // next row of a chain are all one call. output: the target's output matrix, or some of its rows. Returns logits as
  // Decoder::forward does.
  std::span<float> forward(const Batch& batch, const Rows& features, const Linear& output) override;
  // The predicted features of the rows that wanted their hidden state, in row order; valid until the next call.
  Rows predicted() const override { return decoder_.hidden(); }
  bool reads_features() const override { return true; }

  // What the constructor allocates.
  static size_t memory_bytes(const ModelConfig& config, const DecoderLimits& limits, int threads);

 private:
  EagleHead head_;
  const ModelConfig& target_;
  const Weights& target_weights_;
  Compute compute_;
  Decoder decoder_;
  Rows joined_, z_;  // [rows, 2 * hidden], [rows, hidden]
  InputMemory inputs_;
  LargeBuffer memory_;
  std::vector<int32_t> ids_;
  std::vector<Row> rows_;
};

}  // namespace quire
