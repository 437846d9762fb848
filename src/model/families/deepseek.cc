// DeepSeek-V2 and V3, and models of their shape (Kimi-K2): latent attention, fine-grained experts chosen within groups,
// shared experts, dense first layers.

#include <cmath>

#include "model/families.h"

namespace quire::deepseek {
namespace {

// kv_b_proj has, head by head, the projections to keys [nope, rank] and to values [value, rank].
void place_hf(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.tensor != Tensor::kKeyOfHead && slot.tensor != Tensor::kValueOfHead) return;
  const auto& m = std::get<Mla>(c.layers[static_cast<size_t>(slot.layer)].mixer);
  const int head = m.nope_dim + m.value_dim;
  source.stacked = false;
  if (slot.tensor == Tensor::kValueOfHead) {
    source.rows = m.heads * head;
    source.first = slot.item * head + m.nope_dim;
  } else {
    source.transposed = true;
    source.cols = m.heads * head;
    source.first_col = slot.item * head;
  }
}

void use_mla(ModelConfig& c, Mla mla) {
  mla.kv_norm = c.output_norm;
  if (mla.q_rank > 0) mla.q_norm = c.output_norm;
  for (LayerSpec& layer : c.layers) layer.mixer = mla;
  set_rope_kind(c, RopeKind::kNeighbours);
}

ModelConfig base_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  Mla mla;
  mla.heads = s.get<int>("num_attention_heads");
  mla.q_rank = s.get_or<int>("q_lora_rank", 0);
  mla.kv_rank = s.get<int>("kv_lora_rank");
  mla.nope_dim = s.get<int>("qk_nope_head_dim");
  mla.rope_dim = s.get<int>("qk_rope_head_dim");
  mla.value_dim = s.get<int>("v_head_dim");
  RopeConfig& rope = c.ropes[0];
  rope.dim = mla.rope_dim;
  mla.scale = static_cast<float>(1 / std::sqrt(mla.nope_dim + mla.rope_dim));
  if (rope.scaling == RopeConfig::Scaling::kYarn) {  // scores are scaled with the length, too
    auto p = s.find("rope_scaling");
    if (!p) p = s.find("rope_parameters");
    const double amplitude = yarn_amplitude(rope.factor, p->get_or<double>("mscale_all_dim", 0));
    mla.scale = static_cast<float>(mla.scale * amplitude * amplitude);
  }
  use_mla(c, mla);
  return c;
}

Moe moe_hf(const HfSettings& s) {
  Moe moe = read_moe(s);
  moe.routing.scale = s.get_or<float>("routed_scaling_factor", 1);
  moe.routing.groups = s.get_or<int>("n_group", 1);
  moe.routing.groups_used = s.get_or<int>("topk_group", 1);
  moe.shared_size = s.get_or<int>("n_shared_experts", 0) * moe.size;
  return moe;
}

ModelConfig v2_hf(const HfSettings& s) {
  ModelConfig c = base_hf(s);
  Moe moe = moe_hf(s);
  moe.routing.normalise = s.get_or<bool>("norm_topk_prob", false);
  const auto method = s.get_or<std::string>("topk_method", "greedy");
  if (method == "greedy") {
    moe.routing.groups = moe.routing.groups_used = 1;
  } else if (method != "group_limited_greedy") {
    throw unsupported("{}: '{}' is not supported; supported: greedy, group_limited_greedy", s.where("topk_method"),
                      method);
  }
  set_experts(c, moe, s.get_or<int>("first_k_dense_replace", 0));
  return c;
}

ModelConfig v3_hf(const HfSettings& s) {
  ModelConfig c = base_hf(s);
  Moe moe = moe_hf(s);
  moe.routing.scores = Routing::Scores::kSigmoid;
  moe.routing.group_by_two = true;
  moe.correction = true;
  set_experts(c, moe, s.get_or<int>("first_k_dense_replace", 0));
  read_predicting_layers(s, c);
  return c;
}

ModelConfig from_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  Mla mla;
  mla.heads = s.get<int>("attention.head_count");
  mla.q_rank = s.get_or<int>("attention.q_lora_rank", 0);
  mla.kv_rank = s.get<int>("attention.kv_lora_rank");
  mla.rope_dim = c.ropes[0].dim;
  const int key = s.get<int>("attention.key_length_mla");
  mla.nope_dim = key - mla.rope_dim;
  mla.value_dim = s.get<int>("attention.value_length_mla");
  const RopeConfig& rope = c.ropes[0];
  const double amplitude = rope.scaling == RopeConfig::Scaling::kYarn
                               ? 1 + s.get_or<double>("rope.scaling.yarn_log_multiplier", 0) * std::log(rope.factor)
                               : 1;
  mla.scale = static_cast<float>(amplitude * amplitude / std::sqrt(key));
  c.ropes[0].attention_factor = 1;
  use_mla(c, mla);
  Moe moe = read_moe(s);
  moe.routing.normalise = s.get_or<bool>("expert_weights_norm", false);  // V2's files leave it out
  const int first = s.get_or<int>("leading_dense_block_count", 0);
  moe.correction = s.file().find_tensor("blk." + std::to_string(first) + ".exp_probs_b.bias") != nullptr;
  moe.routing.group_by_two = moe.correction;
  moe.shared_size = s.get_or<int>("expert_shared_count", 0) * moe.size;
  set_experts(c, moe, first);
  return c;
}

constexpr std::string_view kV2Names[] = {"DeepseekV2ForCausalLM"}, kV3Names[] = {"DeepseekV3ForCausalLM"};

}  // namespace

extern const Family kDeepseekV2 = {"deepseek_v2", kV2Names,  "deepseek2",
                                   v2_hf,         from_gguf, {kSharedExpertsHf, place_hf}};
extern const Family kDeepseekV3 = {
    "deepseek_v3", kV3Names, {},
    v3_hf,         nullptr,  {.names = kSharedExpertsHf, .place = place_hf, .predicting = &kNumberedPredictingHf}};

}  // namespace quire::deepseek
