// Qwen2 and 2.5: biases on queries, keys and values. Qwen3: norms of each head instead. Their mixtures of experts.

#include "model/families.h"

namespace quire::qwen {
namespace {

ModelConfig qwen2_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  s.ignore({"sliding_window", "max_window_layers", "layer_types"});
  if (!s.get_or<bool>("use_sliding_window", false)) return c;
  const int window = sliding_window(s, 4096);
  set_windows(s, c, window, [](int) { return true; });
  if (s.find("layer_types")) return c;
  const int first = s.get_or<int>("max_window_layers", 28);
  for_each_attention(c, [&](Attention& a, int i) { a.window = i >= first ? window : 0; });
  return c;
}

ModelConfig qwen3_hf(const HfSettings& s) {
  ModelConfig c = qwen2_hf(s);
  use_qk_norm(c);
  return c;
}
ModelConfig qwen3_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  use_qk_norm(c);
  return c;
}

ModelConfig qwen2_moe_hf(const HfSettings& s) {
  ModelConfig c = qwen2_hf(s);
  Moe moe = read_moe(s);
  moe.routing.normalise = s.get_or<bool>("norm_topk_prob", false);
  moe.shared_size = s.get<int>("shared_expert_intermediate_size");
  moe.shared_gate = true;
  set_sparse_layers(s, c, moe);
  return c;
}
ModelConfig qwen2_moe_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  Moe moe = read_moe(s);
  moe.routing.normalise = s.get_or<bool>("expert_weights_norm", false);
  moe.shared_size = s.get<int>("expert_shared_feed_forward_length");
  moe.shared_gate = true;
  set_experts(c, moe);
  return c;
}

ModelConfig qwen3_moe_hf(const HfSettings& s) {
  ModelConfig c = qwen3_hf(s);
  Moe moe = read_moe(s);
  moe.routing.normalise = s.get_or<bool>("norm_topk_prob", false);
  set_sparse_layers(s, c, moe);
  return c;
}
ModelConfig qwen3_moe_gguf(const GgufSettings& s) {
  ModelConfig c = qwen3_gguf(s);
  const Moe moe = read_moe(s);
  set_experts(c, moe);
  return c;
}

constexpr std::string_view kQwen2Names[] = {"Qwen2ForCausalLM"}, kQwen3Names[] = {"Qwen3ForCausalLM"},
                           kQwen2MoeNames[] = {"Qwen2MoeForCausalLM"}, kQwen3MoeNames[] = {"Qwen3MoeForCausalLM"};

}  // namespace

extern const Family kQwen2 = {"qwen2", kQwen2Names, "qwen2", qwen2_hf, read_base};
extern const Family kQwen3 = {"qwen3", kQwen3Names, "qwen3", qwen3_hf, qwen3_gguf};
extern const Family kQwen2Moe = {"qwen2_moe", kQwen2MoeNames, "qwen2moe", qwen2_moe_hf, qwen2_moe_gguf};
extern const Family kQwen3Moe = {"qwen3_moe", kQwen3MoeNames, "qwen3moe", qwen3_moe_hf, qwen3_moe_gguf};

}  // namespace quire::qwen
