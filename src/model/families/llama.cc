// Llama and its closest relatives: SmolLM 1 to 3, Mistral, Ministral, Seed-OSS and all files that call
// themselves Llama.

#include <cmath>

#include "model/families.h"

namespace quire::llama {
namespace {

constexpr std::string_view kIgnoredGguf[] = {"rope_freqs.weight"};
constexpr TensorName kSeedGguf[] = {{Tensor::kFfnNorm, "blk.{}.post_attention_norm.weight"}};
constexpr Spelling kGguf{.ignored = kIgnoredGguf};

ModelConfig llama_hf(const HfSettings& s) { return read_base(s); }

// Llama, Mistral and Mixtral: llama.cpp has one name for them, and rotates neighbours.
ModelConfig llama_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_rope_kind(c, RopeKind::kNeighbours);
  set_windows(s, c, [](int) { return true; });
  if (s.get_or<int>("expert_count", 0) > 0) set_experts(c, read_moe(s));
  return c;
}

ModelConfig mistral_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  set_windows(s, c, sliding_window(s, 4096), [](int) { return true; });
  return c;
}

// Llama 4's scaling of queries by their position.
ModelConfig ministral3_hf(const HfSettings& s) {
  ModelConfig c = mistral_hf(s);
  const auto rope = s.find("rope_parameters");
  for_each_attention(c, [&](Attention& a, int) {
    a.query_beta = rope ? rope->get_or<float>("llama_4_scaling_beta", 0.0f) : 0.0f;
    a.query_positions = static_cast<int>(c.ropes[0].original_positions);
  });
  return c;
}

ModelConfig ministral3_gguf(const GgufSettings& s) {
  ModelConfig c = llama_gguf(s);
  if (const auto all = s.get_or<double>("rope.scaling.yarn_log_multiplier", 0); all != 0)
    c.ropes[0].attention_factor = 1;
  for_each_attention(c, [&](Attention& a, int) {
    a.query_beta = s.get_or<float>("attention.temperature_scale", 0.0f);
    a.query_positions = static_cast<int>(c.ropes[0].original_positions);
  });
  return c;
}

// SmolLM3 leaves out rotary positions in every fourth layer (arXiv 2501.18795).
ModelConfig smollm3_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  const int interval = s.get_or<int>("no_rope_layer_interval", 4);
  if (interval < 1) throw invalid("{}: {} must be at least 1", s.where("no_rope_layer_interval"), interval);
  const auto list = s.find("no_rope_layers");
  const auto rotates = list ? list->as<std::vector<int>>() : std::vector<int>{};
  if (list && rotates.size() != c.layers.size())
    throw invalid("{}: {} entries for {} layers", s.where("no_rope_layers"), rotates.size(), c.layers.size());
  for_each_attention(c, [&](Attention& a, int i) {
    const bool has_rope = list ? rotates[static_cast<size_t>(i)] != 0 : (i + 1) % interval != 0;
    if (!has_rope) a.rope = -1;
  });
  return c;
}
ModelConfig smollm3_gguf(const GgufSettings& s) {
  ModelConfig c = llama_gguf(s);
  for_each_attention(c, [](Attention& a, int i) { a.rope = (i + 1) % 4 == 0 ? -1 : a.rope; });
  return c;
}

constexpr std::string_view kLlamaNames[] = {"LlamaForCausalLM"}, kMistralNames[] = {"MistralForCausalLM"},
                           kMinistral3Names[] = {"Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"},
                           kSmolLm3Names[] = {"SmolLM3ForCausalLM"}, kSeedOssNames[] = {"SeedOssForCausalLM"};

}  // namespace

extern const Family kLlama = {"llama", kLlamaNames, "llama", llama_hf, llama_gguf, {}, kGguf};
extern const Family kMistral = {"mistral", kMistralNames, {}, mistral_hf, nullptr};
extern const Family kMinistral3 = {"ministral3", kMinistral3Names, "mistral3", ministral3_hf, ministral3_gguf, {},
                                   kGguf};
extern const Family kSmolLm3 = {"smollm3", kSmolLm3Names, "smollm3", smollm3_hf, smollm3_gguf, {}, kGguf};
extern const Family kSeedOss = {"seed_oss", kSeedOssNames, "seed_oss", llama_hf, read_base, {}, {kSeedGguf}};

}  // namespace quire::llama
