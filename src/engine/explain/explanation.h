// The numbers of one forward pass, for people who want to see what a model computes.
#pragma once

#include <string_view>
#include <vector>

#include "quire/types.h"

namespace quire {

struct ExplainRequest {
  static constexpr int kMostTokens = 16;  // one page of the cache

  TokenIds tokens;  // 1 to kMostTokens
  int layer = 0;    // whose numbers are shown
  int head = 0;     // of its attention; ignored if the layer has none
};

// A vector on the path of the last token. Places that a model does not have are left out. In the order of computation:
//   embedding        the row of the embedding matrix
//   layer_input      the residual stream where the layer begins
//   mixer_input      after the norm: what queries, keys and values, or a recurrent mixer, are computed from
//   query, key, value                of the head, as projected; the last two are those of its KV head
//   query_positioned, key_positioned after their norms and rotation: what is multiplied, and what the cache gets
//   attended         the head's result: the weighted sum of values
//   after_mixer      the residual stream with the mixer's result
//   ffn_input        after the norm
//   router           a score for each expert
//   gate, up         the projections of the MLP; of a mixture, of its shared MLP
//   activation       f(gate) * up, or f(up): what the down projection reads
//   layer_output     the residual stream where the layer ends
//   final_hidden     after the last norm: what the output matrix reads
// In models with latent attention (MLA), keys and values are those of the latent, which all heads share.
struct ExplainedVector {
  std::string_view place;
  std::vector<float> values;
};

struct Explanation {
  int layers = 0;                              // of the model
  int layer = 0;                               // the one that is shown
  int heads = 0;                               // of its attention; 0: it has none
  int head = 0, kv_head = 0;                   // the head that is shown, and the one whose keys and values it reads
  std::vector<std::vector<float>> embeddings;  // of each token [hidden]
  std::vector<ExplainedVector> path;

  // Of the head, for each token: rotated keys as they go to the cache, before the cache rounds them, and values as
  // projected. `values` is empty if the layer reads another's cache.
  std::vector<std::vector<float>> keys, values;
  // The last token's row of attention: a score and a weight for each token, 0 where a window hides it. Attention does not
  // store it, so it is computed here by the definition, in float32, from the query and `keys`. Both empty: the layer has no
  // attention.
  std::vector<float> scores, weights;
  float sink = 0;  // the weight that goes to no token (gpt-oss); with it, the weights add up to 1

  std::vector<double>
      residual_norms;         // Euclidean norms of the last token's residual stream, where each layer begins and,
                              // in models with logits, where the last one ends
  std::vector<float> logits;  // [vocab], of the last token; empty: the model has none. The engine's own bits
};

}  // namespace quire
