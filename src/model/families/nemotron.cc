// Nemotron-H: Mamba-2, attention without positions, and plain MLPs in a pattern. The files number each of them as a layer
// with a norm of its own; here an MLP belongs to the mixer before it.

#include <algorithm>

#include "model/families.h"

namespace quire {
namespace {

constexpr TensorName kHf[] = {{Tensor::kEmbedding, "backbone.embeddings.weight"},
                              {Tensor::kOutputNorm, "backbone.norm_f.weight"},
                              {Tensor::kMixerNorm, "backbone.layers.{}.norm.weight"},
                              {Tensor::kFfnNorm, "backbone.layers.{}.norm.weight"},
                              {Tensor::kMixIn, "backbone.layers.{}.mixer.in_proj.weight"},
                              {Tensor::kConv, "backbone.layers.{}.mixer.conv1d.weight"},
                              {Tensor::kDecay, "backbone.layers.{}.mixer.A_log"},
                              {Tensor::kSkip, "backbone.layers.{}.mixer.D"},
                              {Tensor::kStepBias, "backbone.layers.{}.mixer.dt_bias"},
                              {Tensor::kMixNorm, "backbone.layers.{}.mixer.norm.weight"},
                              {Tensor::kMixOut, "backbone.layers.{}.mixer.out_proj.weight"},
                              {Tensor::kQ, "backbone.layers.{}.mixer.q_proj.weight"},
                              {Tensor::kK, "backbone.layers.{}.mixer.k_proj.weight"},
                              {Tensor::kV, "backbone.layers.{}.mixer.v_proj.weight"},
                              {Tensor::kO, "backbone.layers.{}.mixer.o_proj.weight"},
                              {Tensor::kUp, "backbone.layers.{}.mixer.up_proj.weight"},
                              {Tensor::kDown, "backbone.layers.{}.mixer.down_proj.weight"}};

bool has_mlp(const LayerSpec& layer) { return std::holds_alternative<Mlp>(layer.ffn); }

// The layer's number in the file.
void place(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.layer < 0) return;
  const auto end = c.layers.begin() + slot.layer;
  const bool of_mlp = slot.tensor == Tensor::kFfnNorm || slot.tensor == Tensor::kUp || slot.tensor == Tensor::kDown;
  const auto number = slot.layer + std::count_if(c.layers.begin(), end, has_mlp) + (of_mlp ? 1 : 0);
  const std::string prefix = "backbone.layers.";
  source.name = prefix + std::to_string(number) + source.name.substr(source.name.find('.', prefix.size()));
}

// The pattern as one letter per layer of the file: M, * or -.
std::string read_pattern(const HfSettings& s) {
  if (const auto pattern = s.find("hybrid_override_pattern")) return pattern->as<std::string>();
  static constexpr std::pair<std::string_view, char> kTypes[] = {
      {"mamba", 'M'}, {"linear_attention", 'M'}, {"attention", '*'}, {"full_attention", '*'}, {"mlp", '-'}};
  const HfSettings::Keys keys = {"layers_block_type", "layer_types"};
  std::string pattern;
  for (const std::string& type : s.get<std::vector<std::string>>(keys)) {
    const auto known = std::ranges::find(kTypes, type, &std::pair<std::string_view, char>::first);
    if (known == std::end(kTypes))
      throw unsupported("{}: '{}' is not supported; supported: mamba, attention, mlp", s.where("layers_block_type"),
                        type);
    pattern += known->second;
  }
  return pattern;
}

ModelConfig from_hf(const HfSettings& s) {
  refuse_bounded_steps(s);
  s.ignore({"n_routed_experts", "num_experts", "num_local_experts"});  // the pattern says that no layer has them
  ModelConfig c = read_base(s);
  auto attention = std::get<Attention>(c.layers[0].mixer);
  attention.rope = -1;
  attention.key_dim = attention.value_dim = s.get_or<int>({"head_dim", "attention_head_dim"}, 128);
  if (const auto act = s.get_or<std::string>("mlp_hidden_act", "relu2"); act != "relu2")
    throw unsupported("{}: '{}' is not supported; supported: relu2", s.where("mlp_hidden_act"), act);
  const Mlp mlp{
      .size = s.get_or<int>("intermediate_size", 21504), .nonlinearity = Nonlinearity::kRelu2, .gated = false};
  const int groups = s.get_or<int>({"n_groups", "mamba_n_groups"}, 8);
  const Mamba2 mamba{.heads = s.get_or<int>("mamba_num_heads", 128),
                     .head_dim = s.get_or<int>("mamba_head_dim", 64),
                     .state_dim = s.get_or<int>("ssm_state_size", 128),
                     .groups = groups,
                     .width = s.get_or<int>({"conv_kernel", "mamba_d_conv"}, 4),
                     .conv_bias = s.get_or<bool>({"use_conv_bias", "mamba_conv_bias"}, true),
                     .norm = {.kind = NormKind::kRms, .epsilon = c.output_norm.epsilon},
                     .norm_groups = groups};
  c.layers.clear();
  for (const char type : read_pattern(s)) {
    if (type == '-' && !c.layers.empty() && !has_mlp(c.layers.back())) {
      c.layers.back().ffn = mlp;
      c.layers.back().ffn_in = c.output_norm;
      continue;
    }
    if (type != 'M' && type != '*')
      throw unsupported("{}: layer '{}' is not supported here; supported: M, * and a - after each",
                        s.where("hybrid_override_pattern"), type);
    LayerSpec& layer = c.layers.emplace_back();
    layer.mixer_in = c.output_norm;
    if (type == 'M')
      layer.mixer = mamba;
    else
      layer.mixer = attention;
  }
  return c;
}

constexpr std::string_view kNames[] = {"NemotronHForCausalLM"};

}  // namespace

extern const Family kNemotronH = {"nemotron_h", kNames, {}, from_hf, nullptr, {kHf, place}};

}  // namespace quire
