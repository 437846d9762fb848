// Nemotron-H: Mamba-2, attention without positions, and plain MLPs or experts in a pattern. The files number each of them
// as a layer with a norm of its own; here an MLP belongs to the mixer before it.

#include <algorithm>

#include "model/families.h"

namespace quire::nemotron {
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
                              {Tensor::kDown, "backbone.layers.{}.mixer.down_proj.weight"},
                              {Tensor::kRouter, "backbone.layers.{}.mixer.gate.weight"},
                              {Tensor::kRouterCorrection, "backbone.layers.{}.mixer.gate.e_score_correction_bias"},
                              {Tensor::kExpertUp, "backbone.layers.{}.mixer.experts.{e}.up_proj.weight"},
                              {Tensor::kExpertDown, "backbone.layers.{}.mixer.experts.{e}.down_proj.weight"},
                              {Tensor::kSharedUp, "backbone.layers.{}.mixer.shared_experts.up_proj.weight"},
                              {Tensor::kSharedDown, "backbone.layers.{}.mixer.shared_experts.down_proj.weight"}};
constexpr TensorName kGguf[] = {{Tensor::kFfnNorm, "blk.{}.attn_norm.weight"}};

bool has_ffn(const LayerSpec& layer) { return !std::holds_alternative<std::monostate>(layer.ffn); }

void place(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.layer < 0) return;
  static constexpr Tensor kOfFfn[] = {Tensor::kFfnNorm,  Tensor::kUp,         Tensor::kDown,
                                      Tensor::kRouter,   Tensor::kExpertUp,   Tensor::kExpertDown,
                                      Tensor::kSharedUp, Tensor::kSharedDown, Tensor::kRouterCorrection};
  const bool of_ffn = std::ranges::find(kOfFfn, slot.tensor) != std::end(kOfFfn);
  const auto before = std::count_if(c.layers.begin(), c.layers.begin() + slot.layer, has_ffn);
  renumber_layer(slot, slot.layer + static_cast<int>(before) + (of_ffn ? 1 : 0), source);
}

Mlp plain_mlp(int size) { return {.size = size, .nonlinearity = Nonlinearity::kRelu2, .gated = false}; }
void make_plain(Moe& moe) {
  moe.routing.scores = Routing::Scores::kSigmoid;
  moe.routing.group_by_two = true;
  moe.nonlinearity = Nonlinearity::kRelu2;
  moe.gated = false;
  moe.correction = true;
}

// The pattern as one letter per layer of the file: M, *, - or E.
std::string read_pattern(const HfSettings& s) {
  if (const auto pattern = s.find("hybrid_override_pattern")) return pattern->as<std::string>();
  static constexpr std::pair<std::string_view, char> kTypes[] = {{"mamba", 'M'},     {"linear_attention", 'M'},
                                                                 {"attention", '*'}, {"full_attention", '*'},
                                                                 {"mlp", '-'},       {"moe", 'E'}};
  const HfSettings::Keys keys = {"layers_block_type", "layer_types"};
  std::string pattern;
  for (const std::string& type : s.get<std::vector<std::string>>(keys)) {
    const auto known = std::ranges::find(kTypes, type, &std::pair<std::string_view, char>::first);
    if (known == std::end(kTypes))
      throw unsupported("{}: '{}' is not supported; supported: mamba, attention, mlp, moe",
                        s.where("layers_block_type"), type);
    pattern += known->second;
  }
  return pattern;
}

// What the letters of the pattern stand for.
struct Parts {
  Attention attention;
  Mamba2 mamba;
  Mlp mlp;
  Moe moe;
};
void lay_out(ModelConfig& c, const std::string& pattern, Parts parts, const std::string& where) {
  parts.attention.rope = -1;
  c.layers.clear();
  for (const char type : pattern) {
    if (type == 'M' || type == '*') {
      LayerSpec& layer = c.layers.emplace_back();
      layer.mixer_in = c.output_norm;
      layer.mixer = type == 'M' ? Mixer(parts.mamba) : Mixer(parts.attention);
    } else if ((type == '-' || type == 'E') && !c.layers.empty() && !has_ffn(c.layers.back())) {
      c.layers.back().ffn_in = c.output_norm;
      c.layers.back().ffn = type == '-' ? FeedForward(parts.mlp) : FeedForward(parts.moe);
    } else {
      throw unsupported("{}: layer '{}' is not supported here; supported: M, *, and - or E after each", where, type);
    }
  }
}

ModelConfig from_hf(const HfSettings& s) {
  refuse_bounded_steps(s);
  s.ignore({"n_routed_experts"});  // the pattern says whether a layer has them
  ModelConfig c = read_base(s);
  const std::string pattern = read_pattern(s);
  if (const auto act = s.get_or<std::string>("mlp_hidden_act", "relu2"); act != "relu2")
    throw unsupported("{}: '{}' is not supported; supported: relu2", s.where("mlp_hidden_act"), act);
  Parts parts{.attention = std::get<Attention>(c.layers[0].mixer),
              .mamba = {},
              .mlp = plain_mlp(s.get_or<int>("intermediate_size", 21504)),
              .moe = {}};
  parts.attention.key_dim = parts.attention.value_dim = s.get_or<int>({"head_dim", "attention_head_dim"}, 128);
  if (pattern.find('E') != std::string::npos) {
    parts.moe = read_moe(s);
    parts.moe.routing.scale = s.get_or<float>("routed_scaling_factor", 1);
    parts.moe.routing.groups = s.get_or<int>("n_group", 1);
    parts.moe.routing.groups_used = s.get_or<int>("topk_group", 1);
    parts.moe.shared_size = s.get_or<int>("moe_shared_expert_intermediate_size", 7688);
    make_plain(parts.moe);
  }
  const int groups = s.get_or<int>({"n_groups", "mamba_n_groups"}, 8);
  parts.mamba = {.heads = s.get_or<int>("mamba_num_heads", 128),
                 .head_dim = s.get_or<int>("mamba_head_dim", 64),
                 .state_dim = s.get_or<int>("ssm_state_size", 128),
                 .groups = groups,
                 .width = s.get_or<int>({"conv_kernel", "mamba_d_conv"}, 4),
                 .conv_bias = s.get_or<bool>({"use_conv_bias", "mamba_conv_bias"}, true),
                 .norm = {.kind = NormKind::kRms, .epsilon = c.output_norm.epsilon},
                 .norm_groups = groups};
  lay_out(c, pattern, parts, s.where("hybrid_override_pattern"));
  return c;
}

ModelConfig from_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  drop_predicting_layers(s, c);
  Parts parts{.attention = {}, .mamba = read_mamba2(s, c), .mlp = {}, .moe = {}};
  // Some files of models without experts have a count as well.
  const bool has_experts = s.has("expert_count") && s.get_or<int>("expert_used_count", 0) > 0;
  if (has_experts) {
    parts.moe = read_moe(s);
    parts.moe.shared_size = s.get_or<int>("expert_shared_feed_forward_length", 0);
    make_plain(parts.moe);
  }
  std::string pattern;
  for (const LayerSpec& layer : c.layers) {
    const auto& attention = std::get<Attention>(layer.mixer);
    const int size = std::get<Mlp>(layer.ffn).size;
    pattern += size > 0 ? (has_experts ? 'E' : '-') : attention.kv_heads > 0 ? '*' : 'M';
    if (attention.kv_heads > 0) parts.attention = attention;
    if (size > 0) parts.mlp = plain_mlp(size);
  }
  lay_out(c, pattern, parts, s.where("feed_forward_length"));
  return c;
}

constexpr std::string_view kNames[] = {"NemotronHForCausalLM"};

}  // namespace

extern const Family kNemotronH = {"nemotron_h", kNames, "nemotron_h", from_hf, from_gguf, {kHf, place}, {kGguf, place}};
extern const Family kNemotronHMoe = {"nemotron_h_moe", {}, "nemotron_h_moe", nullptr, from_gguf, {}, {kGguf, place}};

}  // namespace quire::nemotron
