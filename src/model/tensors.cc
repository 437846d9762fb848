#include "model/tensors.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace quire {
namespace {

// The names that most families use: Llama's in Hugging Face files, llama.cpp's in GGUF files.
struct Names {
  Tensor tensor;
  std::string_view hf, gguf;
};
constexpr Names kNames[] = {
    {Tensor::kEmbedding, "model.embed_tokens.weight", "token_embd.weight"},
    {Tensor::kPositions, "model.embed_positions.weight", "position_embd.weight"},
    {Tensor::kSegments, "embeddings.token_type_embeddings.weight", "token_types.weight"},
    {Tensor::kEmbeddingNorm, "model.embed_norm.weight", "token_embd_norm.weight"},
    {Tensor::kOutputNorm, "model.norm.weight", "output_norm.weight"},
    {Tensor::kOutput, "lm_head.weight", "output.weight"},
    {Tensor::kPerLayerEmbedding, "model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {Tensor::kPerLayerProjection, "model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {Tensor::kPerLayerNorm, "model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    {Tensor::kPerLayerGate, "model.layers.{}.per_layer_input_gate.weight", "blk.{}.inp_gate.weight"},
    {Tensor::kPerLayerOut, "model.layers.{}.per_layer_projection.weight", "blk.{}.proj.weight"},
    {Tensor::kPerLayerOutNorm, "model.layers.{}.post_per_layer_input_norm.weight", "blk.{}.post_norm.weight"},
    {Tensor::kOutputScale, "model.layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight"},
    {Tensor::kAltUpProjection, "model.altup_projections.{e}.weight", "altup_proj.weight"},
    {Tensor::kAltUpUnembed, "model.altup_unembed_projections.{e}.weight", "altup_unembd_proj.weight"},
    {Tensor::kLaurelLeft, "model.layers.{}.laurel.linear_left.weight", "blk.{}.laurel_l.weight"},
    {Tensor::kLaurelRight, "model.layers.{}.laurel.linear_right.weight", "blk.{}.laurel_r.weight"},
    {Tensor::kLaurelNorm, "model.layers.{}.laurel.post_laurel_norm.weight", "blk.{}.laurel_post_norm.weight"},
    {Tensor::kAltUpRouter, "model.layers.{}.altup.modality_router.weight", "blk.{}.altup_router.weight"},
    {Tensor::kAltUpRouterNorm, "model.layers.{}.altup.router_norm.weight", "blk.{}.altup_router_norm.weight"},
    {Tensor::kAltUpPredict, "model.layers.{}.altup.prediction_coefs.weight", "blk.{}.altup_predict_coef.weight"},
    {Tensor::kAltUpCorrect, "model.layers.{}.altup.correction_coefs.weight", "blk.{}.altup_correct_coef.weight"},
    {Tensor::kAltUpScale, "model.layers.{}.altup.correct_output_scale", "blk.{}.altup_correct_scale.weight"},
    {Tensor::kMixerNorm, "model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {Tensor::kMixerOutNorm, "model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    {Tensor::kFfnNorm, "model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {Tensor::kFfnOutNorm, "model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
    {Tensor::kQ, "model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {Tensor::kK, "model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {Tensor::kV, "model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {Tensor::kO, "model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {Tensor::kAttentionGate, "model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {Tensor::kQNorm, "model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    {Tensor::kKNorm, "model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
    {Tensor::kAttentionInnerNorm, "model.layers.{}.self_attn.attn_sub_norm.weight", "blk.{}.attn_sub_norm.weight"},
    {Tensor::kSinks, "model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
    {Tensor::kQLatent, "model.layers.{}.self_attn.q_a_proj.weight", "blk.{}.attn_q_a.weight"},
    {Tensor::kQLatentNorm, "model.layers.{}.self_attn.q_a_layernorm.weight", "blk.{}.attn_q_a_norm.weight"},
    {Tensor::kQOfLatent, "model.layers.{}.self_attn.q_b_proj.weight", "blk.{}.attn_q_b.weight"},
    {Tensor::kKvLatent, "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight"},
    {Tensor::kKvLatentNorm, "model.layers.{}.self_attn.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight"},
    {Tensor::kKeyOfHead, "model.layers.{}.self_attn.kv_b_proj.weight", "blk.{}.attn_k_b.weight"},
    {Tensor::kValueOfHead, "model.layers.{}.self_attn.kv_b_proj.weight", "blk.{}.attn_v_b.weight"},
    {Tensor::kMixIn, "model.layers.{}.mamba.in_proj.weight", "blk.{}.ssm_in.weight"},
    {Tensor::kMixOut, "model.layers.{}.linear_attn.out_proj.weight", "blk.{}.ssm_out.weight"},
    {Tensor::kMixNorm, "model.layers.{}.linear_attn.norm.weight", "blk.{}.ssm_norm.weight"},
    {Tensor::kConv, "model.layers.{}.linear_attn.conv1d.weight", "blk.{}.ssm_conv1d.weight"},
    {Tensor::kDecay, "model.layers.{}.linear_attn.A_log", "blk.{}.ssm_a"},
    {Tensor::kStepBias, "model.layers.{}.linear_attn.dt_bias", "blk.{}.ssm_dt.bias"},
    {Tensor::kSkip, "model.layers.{}.mamba.D", "blk.{}.ssm_d"},
    {Tensor::kDeltaQ, "model.layers.{}.linear_attn.in_proj_qkv.weight", "blk.{}.attn_qkv.weight"},
    {Tensor::kDeltaK, "model.layers.{}.linear_attn.in_proj_qkv.weight", "blk.{}.attn_qkv.weight"},
    {Tensor::kDeltaV, "model.layers.{}.linear_attn.in_proj_qkv.weight", "blk.{}.attn_qkv.weight"},
    {Tensor::kDeltaGate, "model.layers.{}.linear_attn.in_proj_z.weight", "blk.{}.attn_gate.weight"},
    {Tensor::kDeltaDecay, "model.layers.{}.linear_attn.in_proj_a.weight", "blk.{}.ssm_alpha.weight"},
    {Tensor::kDeltaBeta, "model.layers.{}.linear_attn.in_proj_b.weight", "blk.{}.ssm_beta.weight"},
    {Tensor::kGate, "model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {Tensor::kUp, "model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {Tensor::kDown, "model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {Tensor::kFfnInnerNorm, "model.layers.{}.mlp.ffn_sub_norm.weight", "blk.{}.ffn_sub_norm.weight"},
    {Tensor::kRouter, "model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {Tensor::kRouterNorm, "model.layers.{}.router.scale", "blk.{}.ffn_gate_inp.scale"},
    {Tensor::kExpertScale, "model.layers.{}.router.per_expert_scale", "blk.{}.ffn_down_exps.scale"},
    {Tensor::kRouterCorrection, "model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {Tensor::kExpertGate, "model.layers.{}.mlp.experts.{e}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    {Tensor::kExpertUp, "model.layers.{}.mlp.experts.{e}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    {Tensor::kExpertDown, "model.layers.{}.mlp.experts.{e}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
    {Tensor::kExpertsOutNorm, "model.layers.{}.post_feedforward_layernorm_2.weight", "blk.{}.post_ffw_norm_2.weight"},
    {Tensor::kSharedNorm, "model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {Tensor::kSharedOutNorm, "model.layers.{}.post_feedforward_layernorm_1.weight", "blk.{}.post_ffw_norm_1.weight"},
    {Tensor::kSharedGate, "model.layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    {Tensor::kSharedUp, "model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    {Tensor::kSharedDown, "model.layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
    {Tensor::kSharedSwitch, "model.layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight"},
};

std::string fill(std::string_view pattern, std::string_view mark, int number) {
  const size_t at = pattern.find(mark);
  if (at == std::string_view::npos) return std::string(pattern);
  return std::string(pattern.substr(0, at)) + std::to_string(number) + std::string(pattern.substr(at + mark.size()));
}

std::string_view layer_pattern(FileKind kind) { return kind == FileKind::kHf ? "model.layers.{}." : "blk.{}."; }

Change change_of(const Norm& norm) { return norm.plus_one ? Change::kPlusOne : Change::kNone; }

// Visits the tensors of one layer.
class LayerVisit {
 public:
  LayerVisit(const ModelConfig& config, int layer, LayerWeights& weights, TensorVisitor& visitor)
      : c_(config), layer_(layer), w_(weights), visit_(visitor) {}

  void run() {
    const LayerSpec& spec = c_.layers[static_cast<size_t>(layer_)];
    norm(Tensor::kMixerNorm, spec.mixer_in, c_.hidden, w_.mixer_in);
    std::visit([this](const auto& mixer) { visit(mixer); }, spec.mixer);
    norm(Tensor::kMixerOutNorm, spec.mixer_out, c_.hidden, w_.mixer_out);
    if (!spec.shared_norm) norm(Tensor::kFfnNorm, spec.ffn_in, c_.hidden, w_.ffn_in);
    std::visit([this](const auto& ffn) { visit(ffn); }, spec.ffn);
    norm(Tensor::kFfnOutNorm, spec.ffn_out, c_.hidden, w_.ffn_out);
    if (c_.per_layer_dim > 0) {
      matrix(Tensor::kPerLayerGate, c_.per_layer_dim, c_.hidden, w_.per_layer_gate);
      matrix(Tensor::kPerLayerOut, c_.hidden, c_.per_layer_dim, w_.per_layer_out);
      norm(Tensor::kPerLayerOutNorm, c_.output_norm, c_.hidden, w_.per_layer_norm);
    }
    if (spec.laurel_rank > 0) {
      matrix(Tensor::kLaurelLeft, spec.laurel_rank, c_.hidden, w_.laurel_left);
      matrix(Tensor::kLaurelRight, c_.hidden, spec.laurel_rank, w_.laurel_right);
      norm(Tensor::kLaurelNorm, c_.output_norm, c_.hidden, w_.laurel_norm);
    }
    if (const int n = c_.altup.streams; n > 0) {
      matrix(Tensor::kAltUpRouter, n, c_.hidden, w_.altup_router);
      norm(Tensor::kAltUpRouterNorm, c_.output_norm, c_.hidden, w_.altup_norm);
      matrix(Tensor::kAltUpPredict, n * n, n, w_.altup_predict);
      matrix(Tensor::kAltUpCorrect, n, n, w_.altup_correct);
      if (c_.altup.scales_output) vector(Tensor::kAltUpScale, c_.hidden, w_.altup_scale);
    }
    if (spec.output_scale) vector(Tensor::kOutputScale, 1, w_.output_scale);
  }

 private:
  void matrix(Tensor tensor, int rows, int cols, Linear& to) { visit_.matrix({tensor, layer_}, rows, cols, to); }
  void vector(Tensor tensor, int size, Vector& to) { visit_.vector({tensor, layer_}, {size}, to, Change::kNone); }
  void norm(Tensor tensor, const Norm& norm, std::vector<int> shape, NormWeights& to) {
    if (!norm) return;
    if (norm.weight) visit_.vector({tensor, layer_}, shape, to.weight, change_of(norm));
    if (norm.bias) visit_.bias({tensor, layer_}, shape.back(), to.bias);
  }
  void norm(Tensor tensor, const Norm& n, int size, NormWeights& to) { norm(tensor, n, std::vector{size}, to); }

  void visit(const Attention& a) {
    AttentionWeights& w = w_.attention;
    const auto head_norm = [&](Tensor tensor, const Norm& n, int heads, NormWeights& to) {
      if (a.whole_norm) return norm(tensor, n, heads * a.key_dim, to);
      if (a.norm_per_head) return norm(tensor, n, std::vector{heads, a.key_dim}, to);
      norm(tensor, n, a.key_dim, to);
    };
    matrix(Tensor::kQ, a.heads * a.key_dim, c_.hidden, w.q);
    if (a.gate) matrix(Tensor::kAttentionGate, a.heads * a.value_dim, c_.hidden, w.gate);
    head_norm(Tensor::kQNorm, a.q_norm, a.heads, w.q_norm);
    if (a.shares_cache < 0) {
      matrix(Tensor::kK, a.kv_heads * a.key_dim, c_.hidden, w.k);
      matrix(Tensor::kV, a.kv_heads * a.value_dim, c_.hidden, w.v);
      head_norm(Tensor::kKNorm, a.k_norm, a.kv_heads, w.k_norm);
    }
    if (a.sinks) vector(Tensor::kSinks, a.heads, w.sinks);
    norm(Tensor::kAttentionInnerNorm, a.inner, a.heads * a.value_dim, w.inner);
    matrix(Tensor::kO, c_.hidden, a.heads * a.value_dim, w.o);
  }

  void visit(const Mla& m) {
    MlaWeights& w = w_.mla;
    const int queries = m.heads * (m.nope_dim + m.rope_dim);
    if (m.q_rank > 0) {
      matrix(Tensor::kQLatent, m.q_rank, c_.hidden, w.q_latent);
      norm(Tensor::kQLatentNorm, m.q_norm, m.q_rank, w.q_norm);
      matrix(Tensor::kQOfLatent, queries, m.q_rank, w.q);
    } else {
      matrix(Tensor::kQ, queries, c_.hidden, w.q);
    }
    matrix(Tensor::kKvLatent, m.key_dim(), c_.hidden, w.kv_latent);
    norm(Tensor::kKvLatentNorm, m.kv_norm, m.kv_rank, w.kv_norm);
    w.keys.resize(static_cast<size_t>(m.heads));
    w.values.resize(static_cast<size_t>(m.heads));
    for (int h = 0; h < m.heads; ++h) {
      visit_.matrix({Tensor::kKeyOfHead, layer_, h, m.heads}, m.kv_rank, m.nope_dim, w.keys[static_cast<size_t>(h)]);
      visit_.matrix({Tensor::kValueOfHead, layer_, h, m.heads}, m.value_dim, m.kv_rank,
                    w.values[static_cast<size_t>(h)]);
    }
    matrix(Tensor::kO, c_.hidden, m.heads * m.value_dim, w.o);
  }

  void convolution(const StateLayout& state, bool biased, Vector& weight, Vector& bias) {
    visit_.vector({Tensor::kConv, layer_}, {state.channels, state.width}, weight, Change::kTranspose);
    if (biased) visit_.bias({Tensor::kConv, layer_}, state.channels, bias);
  }

  void visit(const ShortConv& m) {
    ShortConvWeights& w = w_.short_conv;
    matrix(Tensor::kMixIn, 3 * m.channels, c_.hidden, w.in);
    convolution(m.state(), m.bias, w.weight, w.bias);
    matrix(Tensor::kMixOut, c_.hidden, m.channels, w.out);
  }

  void visit(const GatedDelta& m) {
    GatedDeltaWeights& w = w_.gated_delta;
    matrix(Tensor::kDeltaQ, m.keys(), c_.hidden, w.q);
    matrix(Tensor::kDeltaK, m.keys(), c_.hidden, w.k);
    matrix(Tensor::kDeltaV, m.values(), c_.hidden, w.v);
    matrix(Tensor::kDeltaGate, m.values(), c_.hidden, w.gate);
    matrix(Tensor::kDeltaDecay, m.value_heads, c_.hidden, w.decay);
    matrix(Tensor::kDeltaBeta, m.value_heads, c_.hidden, w.beta);
    Vector no_bias;
    convolution(m.state(), false, w.conv, no_bias);
    vector(Tensor::kDecay, m.value_heads, w.factor);
    vector(Tensor::kStepBias, m.value_heads, w.bias);
    norm(Tensor::kMixNorm, m.norm, m.value_dim, w.norm);
    matrix(Tensor::kMixOut, c_.hidden, m.values(), w.out);
  }

  void visit(const Mamba2& m) {
    Mamba2Weights& w = w_.mamba2;
    matrix(Tensor::kMixIn, m.inner() + m.channels() + m.heads, c_.hidden, w.in);
    convolution(m.state(), m.conv_bias, w.conv, w.conv_bias);
    vector(Tensor::kDecay, m.heads, w.a);
    vector(Tensor::kSkip, m.heads, w.d);
    vector(Tensor::kStepBias, m.heads, w.bias);
    norm(Tensor::kMixNorm, m.norm, std::vector{m.norm_groups, m.inner() / m.norm_groups}, w.norm);
    matrix(Tensor::kMixOut, c_.hidden, m.inner(), w.out);
  }

  void visit(const std::monostate&) {}
  void visit(const Mlp& m) {
    if (m.gated) matrix(Tensor::kGate, m.size, c_.hidden, w_.mlp.gate);
    matrix(Tensor::kUp, m.size, c_.hidden, w_.mlp.up);
    norm(Tensor::kFfnInnerNorm, m.inner, m.size, w_.mlp.inner);
    matrix(Tensor::kDown, c_.hidden, m.size, w_.mlp.down);
  }
  void visit(const Moe& m) {
    MoeWeights& w = w_.moe;
    matrix(Tensor::kRouter, m.routing.experts, c_.hidden, w.router);
    norm(Tensor::kRouterNorm, m.router_in, c_.hidden, w.router_in);
    if (m.expert_scales) vector(Tensor::kExpertScale, m.routing.experts, w.scales);
    if (m.correction) vector(Tensor::kRouterCorrection, m.routing.experts, w.correction);
    w.experts.resize(static_cast<size_t>(m.routing.experts));
    for (int e = 0; e < m.routing.experts; ++e) {
      ExpertLinears& expert = w.experts[static_cast<size_t>(e)];
      if (m.gated) visit_.matrix({Tensor::kExpertGate, layer_, e, m.routing.experts}, m.size, c_.hidden, expert.gate);
      visit_.matrix({Tensor::kExpertUp, layer_, e, m.routing.experts}, m.size, c_.hidden, expert.up);
      visit_.matrix({Tensor::kExpertDown, layer_, e, m.routing.experts}, c_.hidden, m.size, expert.down);
    }
    norm(Tensor::kExpertsOutNorm, m.experts_out, c_.hidden, w.experts_out);
    if (m.shared_size == 0) return;
    norm(Tensor::kSharedNorm, m.shared_in, c_.hidden, w.shared_in);
    norm(Tensor::kSharedOutNorm, m.shared_out, c_.hidden, w.shared_out);
    if (m.gated) matrix(Tensor::kSharedGate, m.shared_size, c_.hidden, w.shared.gate);
    matrix(Tensor::kSharedUp, m.shared_size, c_.hidden, w.shared.up);
    matrix(Tensor::kSharedDown, c_.hidden, m.shared_size, w.shared.down);
    if (m.shared_gate) matrix(Tensor::kSharedSwitch, 1, c_.hidden, w.shared_gate);
  }

  const ModelConfig& c_;
  const int layer_;
  LayerWeights& w_;
  TensorVisitor& visit_;
};

}  // namespace

void visit_tensors(const ModelConfig& c, Weights& w, TensorVisitor& visitor) {
  const auto norm = [&](Tensor tensor, const Norm& n, NormWeights& to) {
    if (n && n.weight) visitor.vector({tensor}, {c.hidden}, to.weight, change_of(n));
    if (n && n.bias) visitor.bias({tensor}, c.hidden, to.bias);
  };
  const JoinedInput* const joined = c.joined_input ? &*c.joined_input : nullptr;
  if (!joined || joined->embedding) visitor.matrix({Tensor::kEmbedding}, c.vocab, c.hidden, w.embedding);
  if (joined) {
    visitor.matrix({Tensor::kJoin}, c.hidden, 2 * c.hidden, w.join);
    norm(Tensor::kJoinEmbeddingNorm, joined->norm, w.join_embedding);
    norm(Tensor::kJoinFeatureNorm, joined->norm, w.join_features);
  }
  if (c.learned_positions) visitor.matrix({Tensor::kPositions}, c.max_positions, c.hidden, w.positions);
  if (c.segments > 0) visitor.matrix({Tensor::kSegments}, c.segments, c.hidden, w.segments);
  norm(Tensor::kEmbeddingNorm, c.embedding_norm, w.embedding_norm);
  if (c.per_layer_dim > 0) {
    const int all = c.per_layer_dim * static_cast<int>(c.layers.size());
    visitor.matrix({Tensor::kPerLayerEmbedding}, c.vocab, all, w.per_layer_embedding);
    visitor.matrix({Tensor::kPerLayerProjection}, all, c.hidden, w.per_layer_projection);
    visitor.vector({Tensor::kPerLayerNorm}, {c.per_layer_dim}, w.per_layer_norm.weight, Change::kNone);
  }
  if (const int others = c.altup.streams - 1; others > 0) {
    w.altup_projections.resize(static_cast<size_t>(others));
    w.altup_unembed.resize(static_cast<size_t>(others));
    for (int i = 0; i < others; ++i) {
      const auto at = static_cast<size_t>(i);
      visitor.matrix({Tensor::kAltUpProjection, -1, i, others}, c.hidden, c.hidden, w.altup_projections[at]);
      visitor.matrix({Tensor::kAltUpUnembed, -1, i, others}, c.hidden, c.hidden, w.altup_unembed[at]);
    }
  }
  w.layers.resize(c.layers.size());
  for (size_t i = 0; i < c.layers.size(); ++i) LayerVisit(c, static_cast<int>(i), w.layers[i], visitor).run();
  norm(Tensor::kOutputNorm, c.output_norm, w.output_norm);
  const bool own_output = joined ? joined->output : !c.tied_output && c.has_logits;
  if (own_output) visitor.matrix({Tensor::kOutput}, c.vocab, c.hidden, w.output);
  const auto pooled = static_cast<int>(c.pooled.layers.size());
  w.pooled.resize(c.pooled.layers.size());
  for (int i = 0, cols = c.hidden; i < pooled; ++i) {
    const PooledLayer& layer = c.pooled.layers[static_cast<size_t>(i)];
    PooledWeights& weights = w.pooled[static_cast<size_t>(i)];
    const Slot slot{Tensor::kPooled, -1, i, pooled}, of_norm{Tensor::kPooledNorm, -1, i, pooled};
    visitor.matrix(slot, layer.size, cols, weights.linear);
    if (layer.norm) visitor.vector(of_norm, {layer.size}, weights.norm.weight, Change::kNone);
    if (layer.norm && layer.norm.bias) visitor.bias(of_norm, layer.size, weights.norm.bias);
    cols = layer.size;
  }
}

Source find_source(const ModelConfig& config, const Slot& slot, FileKind kind, const Spelling& spelling) {
  if (slot.tensor == Tensor::kPooled || slot.tensor == Tensor::kPooledNorm) {
    const PooledLayer& layer = config.pooled.layers[static_cast<size_t>(slot.item)];
    if (slot.tensor == Tensor::kPooledNorm) return {.name = layer.norm_name};
    if (layer.file_rows == 0) return {.name = layer.name};
    return {.name = layer.name, .first = layer.first_row, .run = 1, .step = layer.row_step, .rows = layer.file_rows};
  }
  std::string pattern;
  int layer = slot.layer;
  const auto take = [&](std::span<const TensorName> names) {
    const auto name = std::ranges::find(names, slot.tensor, &TensorName::first);
    if (name != names.end()) pattern = name->second;
  };
  if (const auto usual = std::ranges::find(kNames, slot.tensor, &Names::tensor); usual != std::end(kNames))
    pattern = kind == FileKind::kHf ? usual->hf : usual->gguf;
  take(spelling.names);
  if (config.joined_input && spelling.predicting) {
    take(spelling.predicting->names);
    layer = config.joined_input->layer;
    if (const std::string_view of_layer = layer_pattern(kind); slot.layer >= 0 && pattern.starts_with(of_layer))
      pattern.replace(0, of_layer.size(), spelling.predicting->block);
  }
  Source source;
  source.stacked = slot.items > 0 && pattern.find("{e}") == std::string_view::npos;
  source.name = fill(slot.items > 0 ? fill(pattern, "{e}", slot.item) : pattern, "{}", layer);
  // Hugging Face files hold log(-A), GGUF files A.
  if (slot.tensor == Tensor::kDecay && kind == FileKind::kHf) source.change = Change::kMinusExp;
  if (spelling.place) spelling.place(config, slot, source);
  return source;
}

float changed(float x, Change change) {
  if (change == Change::kPlusOne) return x + 1;
  // By way of double, so that no C library's rounding changes a bit.
  return change == Change::kMinusExp ? -static_cast<float>(std::exp(static_cast<double>(x))) : x;
}

std::vector<std::string> vector_names(const Source& source, std::span<const int> shape) {
  if (source.name.find("{e}") == std::string::npos) return {source.name};
  std::vector<std::string> names;
  for (int row = 0; row < shape[0]; ++row) names.push_back(fill(source.name, "{e}", row));
  return names;
}

std::string layer_prefix(FileKind kind, int layer, const PredictingSpelling* predicting) {
  return fill(predicting ? predicting->block : layer_pattern(kind), "{}", layer);
}

}  // namespace quire
