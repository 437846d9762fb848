// The configuration of a model, independent of its file format: a list of layers and what surrounds them. Families
// (families.h) fill it; the forward pass (decoder.h) needs nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/layers.h"
#include "model/rope.h"
#include "ops/cache_layout.h"
#include "ops/linear.h"
#include "quire/types.h"

namespace quire {

// Alternating updates (arXiv 2301.13310): several residual streams, of which layers compute with one and predict and
// correct the others.
struct AltUp {
  int streams = 0;  // 0: one ordinary residual stream
  int active = 0;
  bool scales_output = false;
};

// A linear on the pooled vector of a prompt: norm(f(W x + b)).
struct PooledLayer {
  std::string name;  // its weight's, in the file
  int size = 0;      // outputs
  // Output i is row first_row + i * row_step of the file's matrix of file_rows rows; 0: the matrix has `size` rows.
  int file_rows = 0, first_row = 0, row_step = 1;
  bool tanh = false;
  Nonlinearity nonlinearity = Nonlinearity::kNone;  // instead of tanh
  Norm norm = {};
  std::string norm_name = {};  // the norm's weight, in the file
};

// What follows the final hidden states in models for embeddings and classification.
struct PooledOutput {
  Pooling pooling = Pooling::kNone;  // kNone: the files do not say
  std::vector<PooledLayer> layers = {};
  int labels = 0;  // the last layer's results are scores of so many classes; 0: an embedding
  Score score = Score::kRaw;
};

// The input of a layer that drafts by predicting a model's next hidden state. In place of token embeddings it reads
//   W [norm(embedding of the next token); norm(hidden state)]
struct JoinedInput {
  Norm norm = {};          // for each half, with weights of its own; kNone: none
  int layer = -1;          // for multi-token prediction: its number in the model's files
  bool embedding = false;  // embedding and output matrices of its own; false: the model's
  bool output = false;
};

struct ModelConfig {
  std::string architecture;  // the family's name: llama, qwen3, ...
  std::vector<std::string>
      warnings;  // where the files contradict themselves, and what counts; each for a line of a log
  int hidden = 0, vocab = 0;
  int max_positions = 0;  // context length the model was trained for
  std::vector<LayerSpec> layers;
  std::vector<RopeConfig> ropes;   // what Attention::rope refers to
  bool learned_positions = false;  // an embedding per position is added to the token's (GPT-2)
  int first_position = 0;          // rows of the file's table of positions that no token uses (RoBERTa)
  int segments = 0;                // likewise for each of so many texts of a prompt (BERT); 0: none
  float embedding_scale = 1;       // multiplies token embeddings
  Norm embedding_norm, output_norm;
  std::optional<JoinedInput> joined_input;  // drafters only
  int predicting_layers = 0;  // for multi-token prediction, after the model's in its files (speculate/network/mtp.h)
  int first_predicting = 0;   // the number of the first in these files
  // Each token has a second, small embedding for each layer, which gates a further block (Gemma 3n and 4):
  //   e  = (norm(P x0 / sqrt(hidden)) + sqrt(dim) * table[token]) / sqrt(2)        [layers, dim]
  //   x += norm(V (gelu(U x) * e[layer]))                                          after each layer's MLP
  int per_layer_dim = 0;  // 0: none
  AltUp altup;
  InputForms input_forms;        // what quantized weights need
  bool values_are_keys = false;  // Gemma 4: one projection for keys and values in layers that see all tokens
  bool tied_output = false;      // the output matrix is the embedding matrix
  float logit_scale = 1;
  float logit_soft_cap = 0;  // logit = cap * tanh(logit / cap); 0: none
  bool has_logits = true;    // false: encoders and classifiers, which do not predict tokens
  PooledOutput pooled;

  TokenId bos = kNoToken;
  TokenIds eos;  // tokens that end an answer, by the model's configuration files
};

// Tokens see later ones, so a prompt is computed in one step, and nothing of it is reused.
bool is_bidirectional(const ModelConfig& config);
// Numbers in the result for a prompt: of the embedding, or one for each class.
int pooled_size(const ModelConfig& config);

// What attention reads from the cache; none: the layer has no attention.
struct AttentionShape {
  int heads, kv_heads, key_dim, value_dim, window;
};
std::optional<AttentionShape> attention_shape(const LayerSpec& layer);
// The first layer with attention, for reports.
std::optional<AttentionShape> first_attention(const ModelConfig& config);
// Rows of the widest feed-forward layer.
int widest_ffn(const ModelConfig& config);

// Whether the first so many layers can be run without the others: 1 to all, and none whose result the next layer adds.
bool can_exit_after(const ModelConfig& config, int layers);
// Whether a batch may have Batch::picked: only the embedding reads tokens.
bool takes_picked_tokens(const ModelConfig& config);

// What the layers keep of past tokens. drafters: further models whose layers follow, in the same units and states, so that
// a sequence's page tables serve them all: a page that is shared, copied or stored has what the drafters know of its
// tokens, too.
CacheLayout cache_layout(const ModelConfig& config, KvType type, std::span<const ModelConfig* const> drafters = {});

// Everything in the configuration that changes a computed number, as text: for the keys of persisted pages.
std::string config_identity(const ModelConfig& config);

// Checks the ranges and relations that all other code relies on; throws Error naming `file`.
void validate(const ModelConfig& config, const std::string& file);

}  // namespace quire
