// Llama, and what the families derived from it share.

#include <cmath>
#include <utility>

#include "base/error.h"
#include "model/families.h"

namespace quire {
namespace {

constexpr std::string_view kIgnoredHf[] = {"model.layers.{}.self_attn.rotary_emb.inv_freq"};
constexpr std::string_view kIgnoredGguf[] = {"rope_freqs.weight", "blk.{}.attn_rot_embd"};

RopeConfig::Scaling scaling_of(const std::string& name, const std::string& where) {
  if (name == "default" || name == "none") return RopeConfig::Scaling::kNone;
  if (name == "linear") return RopeConfig::Scaling::kLinear;
  if (name == "llama3") return RopeConfig::Scaling::kLlama3;
  if (name == "yarn") return RopeConfig::Scaling::kYarn;
  throw unsupported("{}: rope scaling '{}' is not supported; supported: default, linear, llama3, yarn", where, name);
}

// rope_scaling next to rope_theta (transformers 4), or rope_parameters (transformers 5). The former takes precedence,
// as in transformers.
void read_rope_hf(const JsonField& config, RopeConfig& rope) {
  rope.theta = config.get_or<double>("rope_theta", 10000.0);
  auto parameters = config.find("rope_scaling");
  if (!parameters || parameters->json().empty()) parameters = config.find("rope_parameters");
  for (const JsonField* object : {&config, parameters ? &*parameters : &config}) {
    if (const double part = object->get_or<double>("partial_rotary_factor", 1.0); part != 1) {
      throw unsupported("{}: {} is not supported; this family rotates whole heads",
                        object->where("partial_rotary_factor"), part);
    }
  }
  if (!parameters) return;
  for (const auto& [key, value] : parameters->json().items()) {
    if (value.is_object())
      throw unsupported("{}: separate parameters for a kind of layer are not supported", parameters->where(key));
  }
  rope.theta = parameters->get_or<double>("rope_theta", rope.theta);
  const char* key = parameters->has("rope_type") ? "rope_type" : "type";
  rope.scaling = scaling_of(parameters->get_or<std::string>(key, "default"), parameters->where(key));
  if (rope.scaling == RopeConfig::Scaling::kNone) return;
  const auto trained = config.get_or<double>("max_position_embeddings", 0.0);
  rope.original_positions = config.get_or<double>(
      "original_max_position_embeddings", parameters->get_or<double>("original_max_position_embeddings", trained));
  const bool is_yarn = rope.scaling == RopeConfig::Scaling::kYarn;
  rope.factor =
      is_yarn && !parameters->has("factor") ? trained / rope.original_positions : parameters->get<double>("factor");
  rope.low_frequency_factor = parameters->get_or<double>("low_freq_factor", rope.low_frequency_factor);
  rope.high_frequency_factor = parameters->get_or<double>("high_freq_factor", rope.high_frequency_factor);
  rope.beta_fast = parameters->get_or<double>("beta_fast", rope.beta_fast);
  rope.beta_slow = parameters->get_or<double>("beta_slow", rope.beta_slow);
  rope.attention_factor = parameters->optional<double>("attention_factor");
  if (rope.scaling != RopeConfig::Scaling::kYarn) return;
  for (const char* other : {"mscale", "mscale_all_dim"}) {
    if (parameters->get_or<double>(other, 0) != 0) throw unsupported("{}: not supported", parameters->where(other));
  }
  if (!parameters->get_or<bool>("truncate", true))
    throw unsupported("{}: only true is supported", parameters->where("truncate"));
}

// Refuses settings that would change the angles or their amplitude; Quire computes only with the values listed here.
void check_rope_gguf(const Gguf& gguf, const std::string& arch) {
  constexpr std::pair<const char*, double> kComputed[] = {{"attn_factor", 1},     {"yarn_attn_factor", 1},
                                                          {"yarn_ext_factor", 1}, {"yarn_beta_fast", 32},
                                                          {"yarn_beta_slow", 1},  {"yarn_log_multiplier", 0}};
  for (const auto& [name, computed] : kComputed) {
    const std::string key = fmt::format("{}.rope.scaling.{}", arch, name);
    if (const auto value = gguf.get_or<double>(key, computed); value != computed)
      throw unsupported("{}: {} is {}; only {} is supported", gguf.file(), key, value, computed);
  }
}

// Refuses settings that no Llama or Qwen2 has and that would make it a different model. neutral: the value without
// effect.
void refuse_other_models(const Gguf& gguf, const std::string& arch) {
  struct Setting {
    std::string_view key;
    double neutral;
  };
  static constexpr Setting kSettings[] = {
      {"attn_logit_softcapping", 0},
      {"final_logit_softcapping", 0},
      {"attention.clamp_kqv", 0},
      {"attention.max_alibi_bias", 0},
      {"logit_scale", 1},
      {"residual_scale", 1},
      {"embedding_scale", 1},
  };
  for (const auto& [name, neutral] : kSettings) {
    const std::string key = fmt::format("{}.{}", arch, name);
    const auto value = gguf.get_or<double>(key, neutral);
    // Some writers put 0 for a scale that is not set.
    if (value != neutral && value != 0) throw unsupported("{}: key {}: {} is not supported", gguf.file(), key, value);
  }
  const std::string causal = arch + ".attention.causal", experts = arch + ".expert_count";
  if (!gguf.get_or<bool>(causal, true)) {
    throw unsupported("{}: key {}: false is not supported; Quire computes only causal attention", gguf.file(), causal);
  }
  if (const auto count = gguf.get_or<int64_t>(experts, 0); count != 0)
    throw unsupported("{}: key {}: {} is not supported; Quire has no mixtures of experts", gguf.file(), experts, count);
}

void finish(ModelConfig& c, int window) {
  if (c.attention_scale == 0) c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  if (c.layers > 0 && c.layers <= 1024) c.windows.assign(static_cast<size_t>(c.layers), window);
}

}  // namespace

const TensorNames kLlamaHfNames = {
    .embedding = "model.embed_tokens.weight",
    .output_norm = "model.norm.weight",
    .output = "lm_head.weight",
    .attention_norm = "model.layers.{}.input_layernorm.weight",
    .q = "model.layers.{}.self_attn.q_proj.weight",
    .k = "model.layers.{}.self_attn.k_proj.weight",
    .v = "model.layers.{}.self_attn.v_proj.weight",
    .o = "model.layers.{}.self_attn.o_proj.weight",
    .ffn_norm = "model.layers.{}.post_attention_layernorm.weight",
    .gate = "model.layers.{}.mlp.gate_proj.weight",
    .up = "model.layers.{}.mlp.up_proj.weight",
    .down = "model.layers.{}.mlp.down_proj.weight",
    .ignored = kIgnoredHf,
};

const TensorNames kLlamaGgufNames = {
    .embedding = "token_embd.weight",
    .output_norm = "output_norm.weight",
    .output = "output.weight",
    .attention_norm = "blk.{}.attn_norm.weight",
    .q = "blk.{}.attn_q.weight",
    .k = "blk.{}.attn_k.weight",
    .v = "blk.{}.attn_v.weight",
    .o = "blk.{}.attn_output.weight",
    .ffn_norm = "blk.{}.ffn_norm.weight",
    .gate = "blk.{}.ffn_gate.weight",
    .up = "blk.{}.ffn_up.weight",
    .down = "blk.{}.ffn_down.weight",
    .ignored = kIgnoredGguf,
};

ModelConfig read_llama_hf(const HfConfig& hf) {
  const JsonField& j = hf.config;
  ModelConfig c;
  c.layers = j.get<int>("num_hidden_layers");
  c.hidden = j.get<int>("hidden_size");
  c.heads = j.get<int>("num_attention_heads");
  c.kv_heads = j.get_or<int>("num_key_value_heads", c.heads);
  c.head_dim = j.get_or<int>("head_dim", c.heads > 0 ? c.hidden / c.heads : 0);
  c.ffn = j.get<int>("intermediate_size");
  c.vocab = j.get<int>("vocab_size");
  c.max_positions = j.get_or<int>("max_position_embeddings", 2048);
  c.norm_epsilon = j.get_or<float>("rms_norm_eps", 1e-6f);
  c.tied_output = j.get_or<bool>("tie_word_embeddings", false);
  const auto activation = j.get_or<std::string>("hidden_act", "silu");
  if (activation != "silu")
    throw unsupported("{}: '{}' is not supported; this family uses silu", j.where("hidden_act"), activation);
  c.rope.kind = RopeKind::kHalves;
  c.rope.dim = c.head_dim;
  read_rope_hf(j, c.rope);
  const EndTokens ends = end_tokens(hf);
  c.bos = ends.bos;
  c.eos = ends.eos;
  finish(c, 0);
  return c;
}

int sliding_window(const HfConfig& hf) {
  const bool is_said = hf.config.json().contains("sliding_window");
  return hf.config.get_or<int>("sliding_window", is_said ? 0 : 4096);  // transformers' default if the key is missing
}

ModelConfig read_llama_gguf(const Gguf& gguf) {
  const auto arch = gguf.get<std::string>("general.architecture");
  const auto key = [&](std::string_view name) { return arch + "." + std::string(name); };
  ModelConfig c;
  c.architecture = arch;
  c.layers = gguf.get<int>(key("block_count"));
  c.hidden = gguf.get<int>(key("embedding_length"));
  c.heads = gguf.get<int>(key("attention.head_count"));
  c.kv_heads = gguf.get_or<int>(key("attention.head_count_kv"), c.heads);
  c.head_dim = gguf.get_or<int>(key("attention.key_length"), c.heads > 0 ? c.hidden / c.heads : 0);
  c.ffn = gguf.get<int>(key("feed_forward_length"));
  c.max_positions = gguf.get<int>(key("context_length"));
  c.norm_epsilon = gguf.get<float>(key("attention.layer_norm_rms_epsilon"));
  c.attention_scale = gguf.get_or<float>(key("attention.scale"), 0.0f);
  refuse_other_models(gguf, arch);
  const TensorView* embedding = gguf.find_tensor(kLlamaGgufNames.embedding);
  if (!embedding || embedding->shape.size() != 2)
    throw invalid("{}: tensor {} is missing or not a matrix; is this file only a vocabulary?", gguf.file(),
                  kLlamaGgufNames.embedding);
  c.vocab = static_cast<int>(std::min<uint64_t>(embedding->shape[0], 1u << 30));
  c.tied_output = gguf.find_tensor(kLlamaGgufNames.output) == nullptr;
  c.rope.kind = RopeKind::kNeighbours;
  c.rope.dim = gguf.get_or<int>(key("rope.dimension_count"), c.head_dim);
  c.rope.theta = gguf.get_or<double>(key("rope.freq_base"), 10000.0);
  c.rope.scaling = scaling_of(gguf.get_or<std::string>(key("rope.scaling.type"), "none"),
                              fmt::format("{}: key {}", gguf.file(), key("rope.scaling.type")));
  c.rope.factor = gguf.get_or<double>(key("rope.scaling.factor"), gguf.get_or<double>(key("rope.scale_linear"), 1.0));
  if (c.rope.scaling == RopeConfig::Scaling::kNone && c.rope.factor != 1) c.rope.scaling = RopeConfig::Scaling::kLinear;
  check_rope_gguf(gguf, arch);
  c.rope.original_positions = gguf.get_or<double>(key("rope.scaling.original_context_length"), c.max_positions);
  if (const TensorView* divisors = gguf.find_tensor("rope_freqs.weight")) {
    if (divisors->type != TensorType::F32)
      throw unsupported("{}: rope_freqs.weight is {}, expected F32", gguf.file(), name(divisors->type));
    c.rope.frequency_divisors.resize(divisors->bytes.size() / sizeof(float));
    std::copy_n(divisors->bytes.begin(), divisors->bytes.size(),
                reinterpret_cast<std::byte*>(c.rope.frequency_divisors.data()));
  }
  finish(c, gguf.get_or<int>(key("attention.sliding_window"), 0));
  return c;
}

namespace {

ModelConfig llama_hf(const HfConfig& hf) {
  ModelConfig c = read_llama_hf(hf);
  c.architecture = "llama";
  return c;
}

}  // namespace

const Family kLlama = {"LlamaForCausalLM", "llama", llama_hf, read_llama_gguf, &kLlamaHfNames, &kLlamaGgufNames};

}  // namespace quire
