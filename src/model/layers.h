// What a layer of a model computes. Families (families.h) fill these; the blocks in model/blocks run them. A family's
// traits are data here, never a branch on its name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "kernels/types.h"
#include "ops/experts.h"
#include "ops/recurrent.h"

namespace quire {

struct Norm {
  NormKind kind = NormKind::kNone;
  float epsilon = 0;
  bool weight = true, bias = false;  // tensors that it has
  bool plus_one = false;             // the file stores w, and the norm multiplies by 1 + w (Gemma)

  explicit operator bool() const { return kind != NormKind::kNone; }
};

// softmax(scale * q k^T) v over the tokens that a query sees, in heads that share KV heads (GQA: arXiv 2305.13245).
struct Attention {
  int heads = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  int rope = 0;           // index into ModelConfig::ropes; -1: none
  int window = 0;         // tokens a query sees, its own included; 0: all
  int shares_cache = -1;  // the earlier layer whose keys and values it reads; -1: it has its own
  float scale = 0;        // 0: 1 / sqrt(key_dim)
  float soft_cap = 0;     // caps the scores (Gemma 2); 0: none
  float clip = 0;         // queries, keys and values are clipped to [-clip, clip] (OLMoE); 0: not
  bool causal = true;
  bool sinks = false;     // a learned score per head that takes part in the softmax (gpt-oss)
  bool alibi = false;     // scores fall with the distance, by a slope per head (arXiv 2108.12409)
  float alibi_max = 8;    // the largest exponent of the slopes (MPT)
  float alibi_scale = 1;  // multiplies the slopes (Falcon)
  bool gate = false;      // the result is multiplied by the sigmoid of a projection (Qwen3-Next)
  // Llama 4's scaling of queries: 1 + beta * log(1 + floor(position / query_positions)); 0: none
  float query_beta = 0;
  int query_positions = 0;
  Norm q_norm, k_norm, v_norm;   // applied to each head
  bool whole_norm = false;       // q_norm and k_norm normalise all heads together (OLMo 2)
  bool norm_per_head = false;    // each head has weights of its own (Cohere)
  bool norm_after_rope = false;  // q_norm and k_norm normalise what rope has rotated (Hunyuan)
  Norm inner;                    // applied to the heads' results, before the output projection (BitNet)

  int group() const { return heads / kv_heads; }
};

// LFM2's: out(C * convolution(B * x)) for [B; C; x] = in(input), channel by channel.
struct ShortConv {
  int channels = 0;  // the hidden size
  int width = 0;     // inputs that the convolution sees, the newest included
  bool bias = false;

  StateLayout state() const { return {.channels = channels, .width = width}; }
  int update_size() const { return channels; }
};

// The gated delta net (arXiv 2412.06464): queries, keys and values pass a convolution and SiLU, and each value head
// keeps a matrix that maps keys to values. Its results are normalised and multiplied by SiLU of a projection.
struct GatedDelta {
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int width = 0;             // the convolution's
  bool interleaved = false;  // value head h uses key head h % key_heads (llama.cpp's order), not those of its group
  Norm norm = {};            // applied to each head's results

  int keys() const { return key_heads * key_dim; }
  int values() const { return value_heads * value_dim; }
  int channels() const { return 2 * keys() + values(); }
  StateLayout state() const {
    return {.channels = channels(), .width = width, .heads = value_heads, .rows = key_dim, .cols = value_dim};
  }
  int update_size() const { return channels() + 2 * value_heads; }
};

// Mamba-2 (arXiv 2405.21060): inputs and the vectors B and C pass a convolution and SiLU, and each head keeps a matrix.
// The results are multiplied by SiLU of a projection and normalised.
struct Mamba2 {
  int heads = 0, head_dim = 0, state_dim = 0;
  int groups = 1;  // heads of a group share B and C
  int width = 0;   // the convolution's
  bool conv_bias = false;
  std::array<float, 5> scales = {1, 1, 1, 1, 1};  // multiply parts of the projection: gate, x, B, C, step (Falcon-H1)
  Norm norm = {};                                 // applied to the gated results; kNone: none
  int norm_groups = 1;                            // runs of results that are normalised on their own

  int inner() const { return heads * head_dim; }
  int channels() const { return inner() + 2 * groups * state_dim; }
  StateLayout state() const {
    return {.channels = channels(), .width = width, .heads = heads, .rows = state_dim, .cols = head_dim};
  }
  int update_size() const { return channels() + heads; }
};

// down(f(gate x) * (up x)), or down(f(up x)) without a gate.
struct Mlp {
  int size = 0;
  Nonlinearity nonlinearity = Nonlinearity::kSilu;
  bool gated = true;
  Norm inner = {};  // before the down projection (BitNet)
  // Gates below mean + sparsity * deviation of their row count as 0, the others are reduced by it (Gemma 3n); 0: none.
  float sparsity = 0;
  float gate_scale = 1;  // multiplies the gates (Falcon-H1)

  bool changes_gates() const { return sparsity != 0 || gate_scale != 1; }  // before the nonlinearity
};

// A router chooses a few of many small MLPs for each token; their weighted results are added. The router computes
// in float32 whatever the inputs of other linears are rounded to.
struct Moe {
  Routing routing;
  bool correction = false;  // a bias per expert is added to the scores for choosing, not for weighing (DeepSeek-V3)
  int size = 0;             // an expert's
  Nonlinearity nonlinearity = Nonlinearity::kSilu;
  bool gated = true;           // also of the shared MLP
  float alpha = 0, limit = 0;  // for kClampedSwiglu
  int shared_size = 0;         // an MLP that every token uses; 0: none
  bool shared_gate = false;    // its result is multiplied by the sigmoid of a projection (Qwen2-MoE)
  // Gemma 4 normalises what the router, the shared MLP and the experts read, each for itself, and the results of the latter
  // two; the layer needs ffn_out. kNone: the router and the shared MLP read what the experts do.
  Norm router_in = {}, shared_in = {}, shared_out = {}, experts_out = {};
  float router_scale = 1;      // multiplies the scores
  bool expert_scales = false;  // a factor per expert multiplies its weight
};

// Multi-head latent attention (DeepSeek-V2: arXiv 2405.04434): the cache holds one latent vector per token, from which
// each head's keys and values are projections. They are not computed: a head's query goes through its key projection, and
// what it attends to through its value projection, so all heads read the latent itself, like one shared KV head.
struct Mla {
  int heads = 0;
  int q_rank = 0;                  // queries come from a latent of their own; 0: from the input
  int kv_rank = 0;                 // size of the latent
  int nope_dim = 0, rope_dim = 0;  // parts of a head's query and key without and with a position
  int value_dim = 0;
  int rope = 0;          // index into ModelConfig::ropes
  float scale = 0;       // 0: 1 / sqrt(nope_dim + rope_dim)
  Norm q_norm, kv_norm;  // applied to the latents

  int key_dim() const { return kv_rank + rope_dim; }  // what the cache holds of a token
};

using Mixer = std::variant<Attention, Mla, ShortConv, GatedDelta, Mamba2>;
// What a recurrent mixer keeps of a sequence; attention: nothing.
inline StateLayout state_of(const Mixer& mixer) {
  if (const auto* m = std::get_if<ShortConv>(&mixer)) return m->state();
  if (const auto* m = std::get_if<GatedDelta>(&mixer)) return m->state();
  if (const auto* m = std::get_if<Mamba2>(&mixer)) return m->state();
  return {};
}

// Numbers of a row that change the state; attention: none.
inline int update_size(const Mixer& mixer) {
  if (const auto* m = std::get_if<ShortConv>(&mixer)) return m->update_size();
  if (const auto* m = std::get_if<GatedDelta>(&mixer)) return m->update_size();
  if (const auto* m = std::get_if<Mamba2>(&mixer)) return m->update_size();
  return 0;
}

using FeedForward = std::variant<std::monostate, Mlp, Moe>;

//   x += scale * mixer_out(mixer(mixer_in(x)));  x += scale * ffn_out(ffn(ffn_in(x)))     one after the other, or
//   x += scale * mixer(mixer_in(x)) + scale * ffn(ffn_in(x))                               if `parallel`, or
//   x = mixer_out(x + mixer(x));  x = ffn_out(x + ffn(x))                                  if `norm_sums`
//
// with mixer_scale and ffn_scale. A layer that is `joined` has a mixer only, and gives its result to the next layer, which
// adds it together with its own mixer's. So both mixers read the same x (Falcon-H1).
struct LayerSpec {
  Mixer mixer;
  FeedForward ffn;
  Norm mixer_in, mixer_out, ffn_in, ffn_out;
  bool parallel = false;
  bool norm_sums = false;    // mixer_out and ffn_out normalise x with the result added, not the result alone (BERT)
  bool shared_norm = false;  // `parallel`: ffn_in has no tensors of its own, both branches read mixer_in's result
  bool joined = false;
  float mixer_scale = 1, ffn_scale = 1;
  int laurel_rank = 0;        // a low-rank path beside attention (Gemma 3n); 0: none
  bool output_scale = false;  // x is multiplied by a learned number after the layer (Gemma 4)
};

// Attention::query_beta.
inline bool scales_queries(const LayerSpec& layer) {
  const auto* a = std::get_if<Attention>(&layer.mixer);
  return a && a->query_beta != 0;
}

}  // namespace quire
