#include "model/settings.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

// Settings that change the computation, and the value (as JSON) that has no effect; null and absent never have one.
constexpr std::pair<std::string_view, std::string_view> kHfSettings[] = {
    {"activation_sparsity_pattern", "null"},
    {"add_cross_attention", "false"},
    {"alibi", "false"},
    {"altup_num_inputs", "null"},
    {"apply_residual_connection_post_layernorm", "false"},
    {"attention_k_eq_v", "false"},
    {"attention_multiplier", "null"},
    {"attn_logit_softcapping", "0"},
    {"clip_qkv", "0"},
    {"conv_L_cache", "null"},
    {"embedding_multiplier", "1"},
    {"enable_moe_block", "false"},
    {"final_logit_softcapping", "0"},
    {"first_k_dense_replace", "0"},
    {"hidden_size_per_layer_input", "0"},
    {"kv_lora_rank", "0"},
    {"layer_types", "null"},
    {"linear_num_value_heads", "0"},
    {"logit_scale", "1"},
    {"logits_scaling", "1"},
    {"mamba_n_heads", "0"},
    {"mlp_only_layers", "[]"},
    {"moe_latent_size", "0"},
    {"moe_layer_num_skipped", "0"},
    {"moe_num_experts", "0"},
    {"n_routed_experts", "0"},
    {"no_rope_layers", "null"},
    {"num_experts", "0"},
    {"num_kv_shared_layers", "0"},
    {"num_local_experts", "0"},
    {"parallel_attn", "false"},
    {"partial_rotary_factor", "1"},
    {"q_lora_rank", "0"},
    {"qk_layernorm", "false"},
    {"query_pre_attn_scalar", "null"},
    {"residual_multiplier", "1"},
    {"rope_local_base_freq", "null"},
    {"rotary_dim", "null"},
    {"rotary_pct", "1"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"scale_attn_weights", "true"},
    {"sliding_window", "0"},
    {"swiglu_limit", "null"},
    {"use_cla", "false"},
    {"use_double_wide_mlp", "false"},
    {"use_parallel_residual", "false"},
    {"use_qk_norm", "false"},
    {"use_sliding_window", "false"},
};

struct GgufSetting {
  std::string_view name;
  double neutral;
};
constexpr GgufSetting kGgufSettings[] = {
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.sliding_window", 0},
    {"attention.shared_kv_layers", 0},
    {"attention.temperature_scale", 0},
    {"attention.kv_lora_rank", 0},
    {"embedding_length_per_layer_input", 0},
    {"expert_count", 0},
    {"leading_dense_block_count", 0},
    {"logit_scale", 1},
    {"residual_scale", 1},
    {"embedding_scale", 1},
    {"rope.scaling.yarn_log_multiplier", 0},
    {"ssm.state_size", 0},
};

}  // namespace

HfSettings::HfSettings(const HfConfig& hf) : hf_(hf), json_(hf.config) {
  if (const auto text = hf.config.find("text_config")) json_ = *text;
}

void HfSettings::refuse_unread(std::string_view family) const {
  for (const auto& [key, neutral] : kHfSettings) {
    if (read_.contains(key) || !json_.has(key)) continue;
    const Json& value = json_.at(key).json();
    const bool all_full = key == "layer_types" && value.is_array() &&
                          std::ranges::all_of(value, [](const Json& v) { return v == "full_attention"; });
    const bool is_zero = value.is_number() && value.get<double>() == 0,
               is_false = value.is_boolean() && !value.get<bool>();
    const bool unset = neutral == "null" && (is_zero || is_false || value.empty());
    if (value == Json::parse(neutral) || unset || all_full) continue;
    throw unsupported("{}: {} is not supported; Quire's {} family does not have it", json_.where(key), value.dump(),
                      family);
  }
}

std::vector<int> GgufSettings::per_layer(std::string_view name, int layers, int fallback) const {
  const std::string full = read(name);
  const GgufValue* value = gguf_.find(full);
  const auto count = static_cast<size_t>(std::clamp(layers, 0, 1024));
  if (!value || value->type != GgufType::ARRAY) return std::vector(count, gguf_.get_or<int>(full, fallback));
  std::vector<int> numbers = gguf_.numbers<int>(full);
  if (numbers.size() < count)
    throw invalid("{}: key {} has {} numbers for {} layers", gguf_.file(), full, numbers.size(), layers);
  numbers.resize(count);
  return numbers;
}

std::vector<bool> GgufSettings::flags_per_layer(std::string_view name, int layers) const {
  const std::string full = read(name);
  const std::vector<bool> flags = gguf_.numbers<bool>(full);
  if (std::cmp_less(flags.size(), layers))
    throw invalid("{}: key {} has {} flags for {} layers", gguf_.file(), full, flags.size(), layers);
  return flags;
}

void GgufSettings::refuse_unread() const {
  for (const auto& [name, neutral] : kGgufSettings) {
    const std::string full = key(name);
    if (read_.contains(full)) continue;
    const auto value = gguf_.get_or<double>(full, neutral);
    // Some writers put 0 for a scale that is not set.
    if (value != neutral && value != 0) throw unsupported("{}: key {}: {} is not supported", gguf_.file(), full, value);
  }
  const std::string causal = key("attention.causal");
  if (!gguf_.get_or<bool>(causal, true) && !read_.contains(causal))
    throw unsupported("{}: key {}: false is not supported by Quire's {} family", gguf_.file(), causal, architecture_);
}

}  // namespace quire
