// Qwen3-Next and Qwen 3.5: gated delta nets in most layers, attention with a gated result in the others; dense or with
// experts.

#include <algorithm>

#include "model/families.h"

namespace quire::qwen_next {
namespace {

const GatedDelta& delta_of(const ModelConfig& c, const Slot& slot) {
  return std::get<GatedDelta>(c.layers[static_cast<size_t>(slot.layer)].mixer);
}

// A head's query and its gate follow each other.
void place_gate(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.tensor != Tensor::kQ && slot.tensor != Tensor::kAttentionGate) return;
  const auto& a = std::get<Attention>(c.layers[static_cast<size_t>(slot.layer)].mixer);
  if (!a.gate) return;
  source.rows = 2 * a.heads * a.key_dim;
  source.first = slot.tensor == Tensor::kQ ? 0 : a.key_dim;
  source.run = a.key_dim;
  source.step = 2 * a.key_dim;
}

// [q; k; v], each of all heads.
void place_qkv(const ModelConfig& c, const Slot& slot, Source& source) {
  place_gate(c, slot, source);
  if (slot.tensor != Tensor::kDeltaQ && slot.tensor != Tensor::kDeltaK && slot.tensor != Tensor::kDeltaV) return;
  const GatedDelta& m = delta_of(c, slot);
  source.rows = m.channels();
  source.first = slot.tensor == Tensor::kDeltaQ ? 0 : slot.tensor == Tensor::kDeltaK ? m.keys() : 2 * m.keys();
}

// Some files hold the experts of a layer in one tensor, [gate; up] of each.
void place_35_hf(const ModelConfig& c, const Slot& slot, Source& source) {
  place_qkv(c, slot, source);
  if (!source.stacked || (slot.tensor != Tensor::kExpertGate && slot.tensor != Tensor::kExpertUp)) return;
  const int size = std::get<Moe>(c.layers[static_cast<size_t>(slot.layer)].ffn).size;
  source.rows = 2 * size;
  source.first = slot.tensor == Tensor::kExpertGate ? 0 : size;
}

// [b; a] of a key head's value heads, then the next key head's.
void place_ba(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.tensor != Tensor::kDeltaBeta && slot.tensor != Tensor::kDeltaDecay) return;
  const GatedDelta& m = delta_of(c, slot);
  const int heads = m.value_heads / m.key_heads;
  source.rows = 2 * m.value_heads;
  source.first = slot.tensor == Tensor::kDeltaBeta ? 0 : heads;
  source.run = heads;
  source.step = 2 * heads;
}

// Qwen3-Next groups the rows by key head: [q; k; v of its value heads; z of them].
void place_next_hf(const ModelConfig& c, const Slot& slot, Source& source) {
  place_gate(c, slot, source);
  place_ba(c, slot, source);
  if (slot.tensor < Tensor::kDeltaQ || slot.tensor > Tensor::kDeltaGate) return;
  const GatedDelta& m = delta_of(c, slot);
  const int key = m.key_dim, values = m.value_heads / m.key_heads * m.value_dim;
  const bool of_key = slot.tensor == Tensor::kDeltaQ || slot.tensor == Tensor::kDeltaK;
  source.step = 2 * key + 2 * values;
  source.rows = m.key_heads * source.step;
  source.run = of_key ? key : values;
  if (slot.tensor == Tensor::kDeltaK) source.first = key;
  if (slot.tensor == Tensor::kDeltaV) source.first = 2 * key;
  if (slot.tensor == Tensor::kDeltaGate) source.first = 2 * key + values;
}
void place_next_gguf(const ModelConfig& c, const Slot& slot, Source& source) {
  place_qkv(c, slot, source);
  place_ba(c, slot, source);
}

// Layers that do not attend have a delta net.
template <class Attends>
void make_hybrid(ModelConfig& c, GatedDelta delta, const Attends& attends) {
  delta.norm = {.kind = NormKind::kRms, .epsilon = c.output_norm.epsilon};
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (!attends(i)) c.layers[i].mixer = delta;
  }
}

ModelConfig dense_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  c.output_norm.plus_one = true;
  for (LayerSpec& layer : c.layers) layer.mixer_in = layer.ffn_in = c.output_norm;
  use_qk_norm(c);
  const bool gated = s.get_or<bool>("attn_output_gate", true);
  for_each_attention(c, [&](Attention& a, int) { a.gate = gated; });
  const auto types = layer_types(s, c, {"linear_attention", "full_attention"});
  const auto interval = static_cast<size_t>(std::max(1, s.get_or<int>("full_attention_interval", 4)));
  const GatedDelta delta{.key_heads = s.get<int>("linear_num_key_heads"),
                         .value_heads = s.get<int>("linear_num_value_heads"),
                         .key_dim = s.get<int>("linear_key_head_dim"),
                         .value_dim = s.get<int>("linear_value_head_dim"),
                         .width = s.get_or<int>("linear_conv_kernel_dim", 4)};
  make_hybrid(c, delta, [&](size_t i) { return types ? (*types)[i] == "full_attention" : (i + 1) % interval == 0; });
  return c;
}
ModelConfig moe_hf(const HfSettings& s) {
  ModelConfig c = dense_hf(s);
  Moe moe = read_moe(s);
  moe.shared_size = s.get<int>("shared_expert_intermediate_size");
  moe.shared_gate = true;
  set_sparse_layers(s, c, moe);
  return c;
}

ModelConfig read_gguf(const GgufSettings& s, bool interleaved) {
  ModelConfig c = read_base(s);
  drop_predicting_layers(s, c);
  use_qk_norm(c);
  for_each_attention(c, [](Attention& a, int) { a.gate = true; });
  std::optional<std::vector<bool>> recurrent;
  if (s.has("attention.recurrent_layers"))
    recurrent = s.flags_per_layer("attention.recurrent_layers", static_cast<int>(c.layers.size()));
  const auto interval = static_cast<size_t>(std::max(1, s.get_or<int>("full_attention_interval", 4)));
  const int value_heads = s.get<int>("ssm.time_step_rank");
  const GatedDelta delta{.key_heads = s.get<int>("ssm.group_count"),
                         .value_heads = value_heads,
                         .key_dim = s.get<int>("ssm.state_size"),
                         .value_dim = s.get<int>("ssm.inner_size") / std::max(1, value_heads),
                         .width = s.get<int>("ssm.conv_kernel"),
                         .interleaved = interleaved};
  make_hybrid(c, delta, [&](size_t i) { return recurrent ? !(*recurrent)[i] : (i + 1) % interval == 0; });
  return c;
}
ModelConfig with_experts(const GgufSettings& s, ModelConfig c) {
  Moe moe = read_moe(s);
  moe.shared_size = s.get<int>("expert_shared_feed_forward_length");
  moe.shared_gate = true;
  set_experts(c, moe);
  return c;
}

// llama.cpp's converter interleaves the value heads of Qwen 3.5.
ModelConfig dense_gguf(const GgufSettings& s) { return read_gguf(s, true); }
ModelConfig moe_gguf(const GgufSettings& s) { return with_experts(s, read_gguf(s, true)); }
ModelConfig next_gguf(const GgufSettings& s) { return with_experts(s, read_gguf(s, false)); }

constexpr TensorName kNextHf[] = {{Tensor::kDeltaQ, "model.layers.{}.linear_attn.in_proj_qkvz.weight"},
                                  {Tensor::kDeltaK, "model.layers.{}.linear_attn.in_proj_qkvz.weight"},
                                  {Tensor::kDeltaV, "model.layers.{}.linear_attn.in_proj_qkvz.weight"},
                                  {Tensor::kDeltaGate, "model.layers.{}.linear_attn.in_proj_qkvz.weight"},
                                  {Tensor::kDeltaDecay, "model.layers.{}.linear_attn.in_proj_ba.weight"},
                                  {Tensor::kDeltaBeta, "model.layers.{}.linear_attn.in_proj_ba.weight"}};
constexpr TensorName kStackedExperts[] = {{Tensor::kExpertGate, "model.layers.{}.mlp.experts.gate_up_proj"},
                                          {Tensor::kExpertUp, "model.layers.{}.mlp.experts.gate_up_proj"},
                                          {Tensor::kExpertDown, "model.layers.{}.mlp.experts.down_proj"}};
constexpr TensorName kGguf[] = {{Tensor::kFfnNorm, "blk.{}.post_attention_norm.weight"}};
constexpr TensorName kNextGguf[] = {{Tensor::kFfnNorm, "blk.{}.post_attention_norm.weight"},
                                    {Tensor::kDeltaDecay, "blk.{}.ssm_ba.weight"},
                                    {Tensor::kDeltaBeta, "blk.{}.ssm_ba.weight"}};
constexpr std::string_view kIgnored[] = {"mtp.*", "model.mtp.*", "model.visual.*"};

// The first layer for multi-token prediction is used.
constexpr TensorName kPredictingNames[] = {{Tensor::kJoinEmbeddingNorm, "mtp.pre_fc_norm_embedding.weight"},
                                           {Tensor::kJoinFeatureNorm, "mtp.pre_fc_norm_hidden.weight"},
                                           {Tensor::kJoin, "mtp.fc.weight"},
                                           {Tensor::kOutputNorm, "mtp.norm.weight"}};
constexpr PredictingSpelling kPredictingHf = {kPredictingNames, "mtp.layers.0."};

constexpr std::string_view kNextNames[] = {"Qwen3NextForCausalLM"},
                           kDenseNames[] = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
                           kMoeNames[] = {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"};

}  // namespace

extern const Family kQwen3Next = {
    "qwen3_next",
    kNextNames,
    "qwen3next",
    moe_hf,
    next_gguf,
    {.names = kNextHf, .place = place_next_hf, .ignored = kIgnored, .predicting = &kPredictingHf},
    {.names = kNextGguf, .place = place_next_gguf, .predicting = &kPredictingGguf}};
extern const Family kQwen35 = {"qwen3_5",
                               kDenseNames,
                               "qwen35",
                               dense_hf,
                               dense_gguf,
                               {.place = place_35_hf, .ignored = kIgnored, .predicting = &kPredictingHf},
                               {.names = kGguf, .place = place_qkv, .predicting = &kPredictingGguf}};
extern const Family kQwen35Moe = {
    "qwen3_5_moe",
    kMoeNames,
    "qwen35moe",
    moe_hf,
    moe_gguf,
    {.place = place_35_hf, .ignored = kIgnored, .alternatives = kStackedExperts, .predicting = &kPredictingHf},
    {.names = kGguf, .place = place_qkv, .predicting = &kPredictingGguf}};

}  // namespace quire::qwen_next
