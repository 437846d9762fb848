// Mamba-2 alone, and Granite 4: Mamba-2 in most layers, attention in the others, experts next to an MLP that every token
// uses.

#include <algorithm>

#include "model/families.h"

namespace quire {

void refuse_bounded_steps(const HfSettings& s) {
  const auto limits = s.find("time_step_limit");
  if (!limits || !limits->json().is_array() || limits->json().size() != 2) return;
  const Json &low = limits->json()[0], &high = limits->json()[1];
  if ((low.is_number() && low.get<double>() > 0) || high.is_number())
    throw unsupported("{}: {} is not supported; Quire does not bound step sizes", s.where("time_step_limit"),
                      limits->json().dump());
}

namespace {

Norm gated_norm(const ModelConfig& c) { return {.kind = NormKind::kRms, .epsilon = c.output_norm.epsilon}; }

}  // namespace

Mamba2 read_mamba2(const GgufSettings& s, const ModelConfig& c) {
  const int heads = s.get<int>("ssm.time_step_rank"), groups = s.get<int>("ssm.group_count");
  return {.heads = heads,
          .head_dim = s.get<int>("ssm.inner_size") / std::max(1, heads),
          .state_dim = s.get<int>("ssm.state_size"),
          .groups = groups,
          .width = s.get<int>("ssm.conv_kernel"),
          .conv_bias = true,
          .norm = gated_norm(c),
          .norm_groups = groups};
}

}  // namespace quire

namespace quire::mamba {
namespace {

// ---- Mamba-2

constexpr TensorName kMambaHf[] = {{Tensor::kEmbedding, "backbone.embeddings.weight"},
                                   {Tensor::kOutputNorm, "backbone.norm_f.weight"},
                                   {Tensor::kMixerNorm, "backbone.layers.{}.norm.weight"},
                                   {Tensor::kMixIn, "backbone.layers.{}.mixer.in_proj.weight"},
                                   {Tensor::kConv, "backbone.layers.{}.mixer.conv1d.weight"},
                                   {Tensor::kDecay, "backbone.layers.{}.mixer.A_log"},
                                   {Tensor::kSkip, "backbone.layers.{}.mixer.D"},
                                   {Tensor::kStepBias, "backbone.layers.{}.mixer.dt_bias"},
                                   {Tensor::kMixNorm, "backbone.layers.{}.mixer.norm.weight"},
                                   {Tensor::kMixOut, "backbone.layers.{}.mixer.out_proj.weight"}};

ModelConfig mamba2_hf(const HfSettings& s) {
  refuse_bounded_steps(s);
  ModelConfig c;
  c.hidden = s.get<int>("hidden_size");
  c.vocab = s.get<int>("vocab_size");
  c.max_positions = s.get_or<int>("max_position_embeddings", 1 << 20);  // the model has no limit
  c.tied_output = s.get_or<bool>("tie_word_embeddings", false);
  const EndTokens ends = end_tokens(s.files());
  c.bos = ends.bos;
  c.eos = ends.eos;
  c.output_norm = {.kind = NormKind::kRms, .epsilon = s.get_or<float>("layer_norm_epsilon", 1e-5f)};
  const int groups = s.get_or<int>("n_groups", 8);
  const Mamba2 mamba{.heads = s.get_or<int>("num_heads", 128),
                     .head_dim = s.get_or<int>("head_dim", 64),
                     .state_dim = s.get_or<int>("state_size", 128),
                     .groups = groups,
                     .width = s.get_or<int>("conv_kernel", 4),
                     .conv_bias = s.get_or<bool>("use_conv_bias", true),
                     .norm = gated_norm(c),
                     .norm_groups = groups};  // as mamba_ssm trains; transformers normalises all groups together
  const int layers = s.get<int>("num_hidden_layers");
  if (layers < 1 || layers > 1024)
    throw invalid("{}: the number of layers is {}; it must be 1 to 1024", s.where("num_hidden_layers"), layers);
  LayerSpec layer;
  layer.mixer = mamba;
  layer.mixer_in = c.output_norm;
  c.layers.assign(static_cast<size_t>(layers), layer);
  return c;
}

ModelConfig mamba2_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  const Mamba2 mamba = read_mamba2(s, c);
  for (LayerSpec& layer : c.layers) {
    layer.mixer = mamba;
    layer.ffn = {};
    layer.ffn_in = {};
  }
  c.ropes.clear();
  return c;
}

// ---- Granite 4

constexpr TensorName kGraniteHf[] = {{Tensor::kConv, "model.layers.{}.mamba.conv1d.weight"},
                                     {Tensor::kDecay, "model.layers.{}.mamba.A_log"},
                                     {Tensor::kStepBias, "model.layers.{}.mamba.dt_bias"},
                                     {Tensor::kMixNorm, "model.layers.{}.mamba.norm.weight"},
                                     {Tensor::kMixOut, "model.layers.{}.mamba.out_proj.weight"},
                                     {Tensor::kRouter, "model.layers.{}.block_sparse_moe.router.layer.weight"},
                                     {Tensor::kExpertGate, "model.layers.{}.block_sparse_moe.input_linear.weight"},
                                     {Tensor::kExpertUp, "model.layers.{}.block_sparse_moe.input_linear.weight"},
                                     {Tensor::kExpertDown, "model.layers.{}.block_sparse_moe.output_linear.weight"},
                                     {Tensor::kSharedGate, "model.layers.{}.shared_mlp.input_linear.weight"},
                                     {Tensor::kSharedUp, "model.layers.{}.shared_mlp.input_linear.weight"},
                                     {Tensor::kSharedDown, "model.layers.{}.shared_mlp.output_linear.weight"},
                                     {Tensor::kGate, "model.layers.{}.shared_mlp.input_linear.weight"},
                                     {Tensor::kUp, "model.layers.{}.shared_mlp.input_linear.weight"},
                                     {Tensor::kDown, "model.layers.{}.shared_mlp.output_linear.weight"}};

// Each input_linear is [gate; up].
void place_granite(const ModelConfig& c, const Slot& slot, Source& source) {
  const auto place = [&](int size, bool up) {
    source.rows = 2 * size;
    source.first = up ? size : 0;
  };
  const auto& ffn = c.layers[static_cast<size_t>(std::max(0, slot.layer))].ffn;
  if (slot.tensor == Tensor::kGate || slot.tensor == Tensor::kUp)
    place(std::get<Mlp>(ffn).size, slot.tensor == Tensor::kUp);
  if (slot.tensor == Tensor::kExpertGate || slot.tensor == Tensor::kExpertUp)
    place(std::get<Moe>(ffn).size, slot.tensor == Tensor::kExpertUp);
  if (slot.tensor == Tensor::kSharedGate || slot.tensor == Tensor::kSharedUp)
    place(std::get<Moe>(ffn).shared_size, slot.tensor == Tensor::kSharedUp);
}

ModelConfig granite_hf(const HfSettings& s) {
  refuse_bounded_steps(s);
  ModelConfig c = read_base(s);
  set_granite_multipliers(s, c);
  const bool rotates = s.get_or<std::string>("position_embedding_type", "nope") == "rope";
  for_each_attention(c, [&](Attention& a, int) { a.rope = rotates ? 0 : -1; });
  const Mlp shared{.size = s.get_or<int>("shared_intermediate_size", 1024), .nonlinearity = nonlinearity_of(s)};
  const bool has_experts = s.get_or<int>("num_local_experts", 8) > 0;
  Moe moe;
  if (has_experts) {
    moe = read_moe(s);
    moe.routing.scores = Routing::Scores::kSoftmaxOfChosen;
    moe.shared_size = shared.size;
  }
  const int heads = s.get_or<int>("mamba_n_heads", 128), inner = s.get_or<int>("mamba_expand", 2) * c.hidden;
  const Mamba2 mamba{.heads = heads,
                     .head_dim = inner / std::max(1, heads),
                     .state_dim = s.get_or<int>("mamba_d_state", 256),
                     .groups = s.get_or<int>("mamba_n_groups", 1),
                     .width = s.get_or<int>("mamba_d_conv", 4),
                     .conv_bias = s.get_or<bool>("mamba_conv_bias", true),
                     .norm = gated_norm(c)};
  const auto types = layer_types(s, c, {"mamba", "linear_attention", "attention", "full_attention"});
  for (size_t i = 0; i < c.layers.size(); ++i) {
    LayerSpec& layer = c.layers[i];
    if (!types || !(*types)[i].ends_with("attention") || (*types)[i] == "linear_attention") layer.mixer = mamba;
    if (has_experts) {
      layer.ffn = moe;
    } else {
      layer.ffn = shared;
    }
  }
  return c;
}

ModelConfig granite_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_granite_multipliers(s, c);
  const bool rotates = s.get_or<bool>("rope.scaling.finetuned", true);  // llama.cpp's switch
  const Mamba2 mamba = read_mamba2(s, c);
  const bool has_experts = s.get_or<int>("expert_count", 0) > 0;
  Moe moe;
  if (has_experts) {
    moe = read_moe(s);
    moe.routing.scores = Routing::Scores::kSoftmaxOfChosen;
    moe.shared_size = s.get_or<int>("expert_shared_feed_forward_length", 0);
  }
  for (LayerSpec& layer : c.layers) {
    auto& a = std::get<Attention>(layer.mixer);
    a.rope = rotates ? 0 : -1;
    if (a.kv_heads == 0) layer.mixer = mamba;
    if (has_experts) layer.ffn = moe;
  }
  return c;
}

constexpr std::string_view kMambaNames[] = {"Mamba2ForCausalLM"}, kGraniteNames[] = {"GraniteMoeHybridForCausalLM"};

}  // namespace

extern const Family kMamba2 = {"mamba2", kMambaNames, "mamba2", mamba2_hf, mamba2_gguf, {kMambaHf}};
extern const Family kGraniteHybrid = {"granitemoehybrid", kGraniteNames, "granitehybrid",
                                      granite_hf,         granite_gguf,  {kGraniteHf, place_granite}};

}  // namespace quire::mamba
