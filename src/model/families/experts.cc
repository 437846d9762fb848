// Mixtures of experts that are otherwise Llama-like: Mixtral, MiniMax-M2, GLM-4.5 (GLM-4-MoE), gpt-oss.

#include "model/families.h"

namespace quire::experts {
namespace {

// ---- Mixtral

constexpr TensorName kMixtralHf[] = {
    {Tensor::kRouter, "model.layers.{}.block_sparse_moe.gate.weight"},
    {Tensor::kExpertGate, "model.layers.{}.block_sparse_moe.experts.{e}.w1.weight"},
    {Tensor::kExpertUp, "model.layers.{}.block_sparse_moe.experts.{e}.w3.weight"},
    {Tensor::kExpertDown, "model.layers.{}.block_sparse_moe.experts.{e}.w2.weight"},
    {Tensor::kRouterCorrection, "model.layers.{}.block_sparse_moe.e_score_correction_bias"}};

ModelConfig mixtral_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  set_windows(s, c, sliding_window(s, 0), [](int) { return true; });
  set_experts(c, read_moe(s));
  return c;
}

// ---- MiniMax-M2

void make_minimax(ModelConfig& c, Moe moe) {
  use_qk_norm(c);
  for_each_attention(c, [](Attention& a, int) { a.whole_norm = true; });
  moe.routing.scores = Routing::Scores::kSigmoid;
  moe.correction = true;
  set_experts(c, moe);
}
ModelConfig minimax_hf(const HfSettings& s) {
  s.ignore({"use_qk_norm"});
  ModelConfig c = read_base(s);
  make_minimax(c, read_moe(s));
  return c;
}
ModelConfig minimax_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  make_minimax(c, read_moe(s));
  return c;
}

// ---- GLM-4.5

constexpr TensorName kGlmGguf[] = {{Tensor::kFfnNorm, "blk.{}.post_attention_norm.weight"}};

ModelConfig glm4_moe_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  if (s.get_or<bool>("use_qk_norm", false)) use_qk_norm(c);
  Moe moe = read_moe(s);
  moe.routing.scores = Routing::Scores::kSigmoid;
  moe.routing.scale = s.get_or<float>("routed_scaling_factor", 1);
  moe.routing.groups = s.get_or<int>("n_group", 1);
  moe.routing.groups_used = s.get_or<int>("topk_group", 1);
  moe.routing.group_by_two = true;
  moe.correction = true;
  moe.shared_size = s.get_or<int>("n_shared_experts", 0) * moe.size;
  set_experts(c, moe, s.get_or<int>("first_k_dense_replace", 0));
  read_predicting_layers(s, c);
  return c;
}
ModelConfig glm4_moe_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  drop_predicting_layers(s, c);
  if (s.file().find_tensor("blk.0.attn_q_norm.weight")) use_qk_norm(c);
  Moe moe = read_moe(s);
  moe.routing.group_by_two = true;
  moe.correction = true;
  moe.shared_size = s.get_or<int>("expert_shared_count", 0) * moe.size;
  set_experts(c, moe, s.get_or<int>("leading_dense_block_count", 0));
  return c;
}

// ---- gpt-oss: attention sinks, windows in every second layer, clamped gates

constexpr TensorName kOssHf[] = {{Tensor::kRouter, "model.layers.{}.mlp.router.weight"},
                                 {Tensor::kExpertGate, "model.layers.{}.mlp.experts.gate_up_proj"},
                                 {Tensor::kExpertUp, "model.layers.{}.mlp.experts.gate_up_proj"},
                                 {Tensor::kExpertDown, "model.layers.{}.mlp.experts.down_proj"}};

// The experts' matrices are transposed; gate and up are interleaved.
void place_oss(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.items == 0) return;
  source.transposed = true;
  source.bias = source.name + "_bias";
  if (slot.tensor == Tensor::kExpertDown) return;
  source.rows = 2 * std::get<Moe>(c.layers[static_cast<size_t>(slot.layer)].ffn).size;
  source.first = slot.tensor == Tensor::kExpertUp ? 1 : 0;
  source.run = 1;
  source.step = 2;
}

void make_oss(ModelConfig& c, Moe moe, float alpha, float limit) {
  for_each_attention(c, [](Attention& a, int) { a.sinks = true; });
  moe.routing.scores = Routing::Scores::kSoftmaxOfChosen;
  moe.nonlinearity = Nonlinearity::kClampedSwiglu;
  moe.alpha = alpha;
  moe.limit = limit;
  set_experts(c, moe);
}
bool oss_slides(int layer) { return layer % 2 == 0; }

ModelConfig oss_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  set_windows(s, c, sliding_window(s, 128), oss_slides);
  make_oss(c, read_moe(s), s.get_or<float>("swiglu_alpha", 1.702f), s.get_or<float>("swiglu_limit", 7));
  return c;
}
ModelConfig oss_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  c.ropes[0].truncate = false;
  set_windows(s, c, oss_slides);
  make_oss(c, read_moe(s), 1.702f, 7);
  return c;
}

constexpr std::string_view kMixtralNames[] = {"MixtralForCausalLM"}, kMinimaxNames[] = {"MiniMaxM2ForCausalLM"},
                           kGlmNames[] = {"Glm4MoeForCausalLM"}, kOssNames[] = {"GptOssForCausalLM"};

}  // namespace

extern const Family kMixtral = {"mixtral", kMixtralNames, {}, mixtral_hf, nullptr, {kMixtralHf}};
extern const Family kMinimaxM2 = {"minimax_m2", kMinimaxNames, "minimax-m2", minimax_hf, minimax_gguf, {kMixtralHf}};
extern const Family kGlm4Moe = {"glm4_moe",
                                kGlmNames,
                                "glm4moe",
                                glm4_moe_hf,
                                glm4_moe_gguf,
                                {.names = kSharedExpertsHf, .predicting = &kNumberedPredictingHf},
                                {.names = kGlmGguf, .predicting = &kPredictingGguf}};
extern const Family kGptOss = {"gpt_oss", kOssNames, "gpt-oss", oss_hf, oss_gguf, {kOssHf, place_oss}, {kGlmGguf}};

}  // namespace quire::experts
