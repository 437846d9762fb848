#include "plan/unknown_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/text/quote.h"
#include "model/families.h"
#include "model/settings.h"

namespace quire {
namespace {

// Settings of models whose layers are of another kind. Those that merely scale or bend numbers do not matter to a plan.
constexpr std::string_view kOtherLayersHf[] = {"kv_lora_rank",
                                               "mamba_n_heads",
                                               "mamba_num_heads",
                                               "mamba_d_state",
                                               "ssm_cfg",
                                               "state_size",
                                               "linear_num_value_heads",
                                               "conv_L_cache",
                                               "rwkv_version",
                                               "hybrid_override_pattern",
                                               "layers_block_type",
                                               "num_kv_shared_layers",
                                               "hidden_size_per_layer_input",
                                               "altup_num_inputs",
                                               "use_cla",
                                               "cross_attention_layers",
                                               "is_encoder_decoder"};
constexpr std::string_view kOtherLayersGguf[] = {"attention.kv_lora_rank",
                                                 "ssm.state_size",
                                                 "ssm.inner_size",
                                                 "wkv.head_size",
                                                 "attention.shared_kv_layers",
                                                 "embedding_length_per_layer_input"};

bool is_set(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  return !value.empty();
}

// Without a gate are the MLPs of the GELU and ReLU families; those with SiLU have one.
bool has_gate(const HfSettings& s) {
  const auto f =
      s.get_or<std::string>({"hidden_act", "activation_function", "activation", "hidden_activation"}, "silu");
  return !f.starts_with("gelu") && !f.starts_with("relu") && f != "quick_gelu";
}

void check_layer_types(const HfSettings& s) {
  const auto types = s.find("layer_types");
  if (!types) return;
  for (const JsonField& type : types->elements(1024)) {
    if (const std::string& kind = type.string(); !kind.ends_with("attention") || kind.starts_with("linear"))
      throw unsupported("{}: layers of the kind {} cannot be planned, and their family is not known", type.where(),
                        quote(kind));
  }
}

UnknownFamily finish(ModelConfig c, Attention a, FeedForward ffn, int layers, const std::string& file,
                     const std::string& architecture) {
  if (layers < 1 || layers > 1024) throw invalid("{}: the number of layers is {}; it must be 1 to 1024", file, layers);
  a.scale = 1;  // it takes no time
  LayerSpec layer{.mixer = a, .ffn = ffn};
  layer.mixer_in = layer.ffn_in = c.output_norm = {.kind = NormKind::kRms, .epsilon = 1e-5f};
  c.ropes.push_back({.dim = a.key_dim / 2 * 2});
  c.layers.assign(static_cast<size_t>(layers), layer);
  c.architecture = architecture;
  validate(c, file);
  UnknownFamily found{std::move(c), {}};
  found.assumptions.push_back(fmt::format(
      "{} is not a family that Quire runs; it is planned as a decoder of {} equal layers, with attention over {}, {}",
      architecture.empty() ? "The architecture" : quote(architecture), layers,
      a.window > 0 ? fmt::format("the last {} tokens", a.window) : "all tokens",
      std::holds_alternative<Moe>(ffn) ? "and experts"
      : std::get<Mlp>(ffn).gated       ? "and a gated MLP"
                                       : "and an MLP without a gate"));
  return found;
}

UnknownFamily read_unknown_gguf(const Gguf& gguf) {
  const GgufSettings s(gguf);
  for (const std::string_view key : kOtherLayersGguf) {
    if (s.get_or<double>(key, 0) != 0)
      throw unsupported("{}: models with it can only be planned if their family is known; {} is not", s.where(key),
                        quote(s.architecture()));
  }
  ModelConfig c;
  const int layers = s.get<int>("block_count");
  c.hidden = s.get<int>("embedding_length");
  c.max_positions = s.get_or<int>("context_length", 4096);
  const TensorView* const embedding = gguf.find_tensor("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2)
    throw invalid("{}: tensor token_embd.weight is missing or not a matrix, so the vocabulary's size is not known",
                  gguf.file());
  c.vocab = static_cast<int>(std::min<uint64_t>(embedding->shape[0], 1u << 30));
  c.tied_output = gguf.find_tensor("output.weight") == nullptr;
  Attention a;
  a.heads = s.per_layer("attention.head_count", layers, 0)[0];
  a.kv_heads = s.per_layer("attention.head_count_kv", layers, a.heads)[0];
  a.key_dim = s.get_or<int>("attention.key_length", a.heads > 0 ? c.hidden / a.heads : 0);
  a.value_dim = s.get_or<int>("attention.value_length", a.key_dim);
  FeedForward ffn = Mlp{.size = s.per_layer("feed_forward_length", layers, 4 * c.hidden)[0],
                        .gated = gguf.find_tensor("blk.0.ffn_gate.weight") != nullptr};
  if (s.get_or<int>("expert_count", 0) > 0) ffn = read_moe(s);
  return finish(std::move(c), a, ffn, layers, gguf.file(), s.architecture());
}

}  // namespace

UnknownFamily read_unknown_family(const HfConfig& files, const std::string& file) {
  const HfSettings s(files);
  for (const std::string_view key : kOtherLayersHf) {
    if (const auto value = s.find(key); value && is_set(value->json()))
      throw unsupported("{}: {}: models with it can only be planned if their family is known", s.where(key),
                        value->json().dump());
  }
  check_layer_types(s);
  const auto names = files.config.optional<std::vector<std::string>>("architectures");
  const std::string architecture =
      names && !names->empty() ? names->front() : files.config.get_or<std::string>("model_type", "");
  ModelConfig c;
  c.hidden = s.get<int>({"hidden_size", "n_embd", "n_embed", "d_model", "dim", "model_dim"});
  c.vocab = s.get<int>({"vocab_size", "padded_vocab_size", "n_vocab"});
  c.max_positions = s.get_or<int>(
      {"max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len"}, 4096);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", false);
  Attention a;
  a.heads = s.get<int>({"num_attention_heads", "n_head", "n_heads", "num_heads"});
  a.kv_heads = s.get_or<int>({"num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num"}, a.heads);
  a.key_dim = a.value_dim = s.get_or<int>({"head_dim", "kv_channels", "d_kv"}, a.heads > 0 ? c.hidden / a.heads : 0);
  if (s.get_or<bool>("use_sliding_window", true)) a.window = s.get_or<int>({"sliding_window", "window_size"}, 0);
  if (s.has("layer_types")) a.window = 0;  // some layers see all tokens: counts all of them
  FeedForward ffn =
      Mlp{.size = s.get_or<int>({"intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "hidden_dim"},
                                std::min(c.hidden, 1 << 20) * 4),
          .gated = has_gate(s)};
  const HfSettings::Keys experts = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"};
  if (s.get_or<int>(experts, 0) > 0) {
    Moe moe{.gated = true};
    moe.routing.experts = s.get<int>(experts);
    moe.routing.used = s.get<int>({"num_experts_per_tok", "moe_k", "num_experts_per_token", "top_k_experts"});
    moe.size = s.get<int>({"moe_intermediate_size", "intermediate_size", "ffn_hidden_size"});
    const int shared = s.get_or<int>({"n_shared_experts", "num_shared_experts"}, 0);
    moe.shared_size = s.get_or<int>("shared_expert_intermediate_size", std::clamp(shared, 0, 64) * moe.size);
    ffn = moe;
  }
  const int layers = s.get<int>({"num_hidden_layers", "n_layer", "num_layers", "n_layers"});
  return finish(std::move(c), a, ffn, layers, file, architecture);
}

UnknownFamily read_unknown_family(const Checkpoint& checkpoint) {
  return checkpoint.gguf() ? read_unknown_gguf(*checkpoint.gguf())
                           : read_unknown_family(*checkpoint.hf(), checkpoint.file() + "/config.json");
}

}  // namespace quire
