// Gemma 1 to 3: norms that multiply by 1 + w, scaled embeddings, GELU. Gemma 2 adds norms after each block, soft caps and
// alternating windows; Gemma 3 norms of queries and keys, and a second rope for its windows.

#include <cmath>

#include "model/families.h"

namespace quire::gemma {
namespace {

constexpr TensorName kFourNorms[] = {{Tensor::kFfnNorm, "model.layers.{}.pre_feedforward_layernorm.weight"}};
constexpr std::string_view kIgnoredGguf[] = {"rope_freqs.weight"};

void scale_embeddings(ModelConfig& c) { c.embedding_scale = std::sqrt(static_cast<float>(c.hidden)); }

ModelConfig base_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", true);
  c.output_norm.plus_one = true;
  for (LayerSpec& layer : c.layers) layer.mixer_in = layer.ffn_in = c.output_norm;
  scale_embeddings(c);
  return c;
}

ModelConfig base_gguf(const GgufSettings& s) {  // 1 + w is in the file
  ModelConfig c = read_base(s);
  set_nonlinearity(c, Nonlinearity::kGeluTanh, true);
  scale_embeddings(c);
  return c;
}

ModelConfig gemma_hf(const HfSettings& s) {
  ModelConfig c = base_hf(s);
  set_nonlinearity(c, Nonlinearity::kGeluTanh, true);  // whatever the first files say
  return c;
}

ModelConfig gemma2_hf(const HfSettings& s) {
  ModelConfig c = base_hf(s);
  add_output_norms(c);
  const auto scale = s.get_or<float>("query_pre_attn_scalar", 256.0f),
             cap = s.get_or<float>("attn_logit_softcapping", 0);
  if (!(scale > 0)) throw invalid("{}: {} must be positive", s.where("query_pre_attn_scalar"), scale);
  for_each_attention(c, [&](Attention& a, int) {
    a.scale = 1 / std::sqrt(scale);
    a.soft_cap = cap;
  });
  c.logit_soft_cap = s.get_or<float>("final_logit_softcapping", 0);
  set_windows(s, c, sliding_window(s, 4096), [](int i) { return i % 2 == 0; });
  return c;
}

ModelConfig gemma2_gguf(const GgufSettings& s) {
  ModelConfig c = base_gguf(s);
  add_output_norms(c);
  // The file does not say the scale; only the model of 27 billion parameters has another than its head size.
  const bool is_27b = c.layers.size() == 46;
  for_each_attention(c, [&](Attention& a, int) {
    if (is_27b) a.scale = 1 / std::sqrt(static_cast<float>(c.hidden) / static_cast<float>(a.heads));
    a.soft_cap = s.get_or<float>("attn_logit_softcapping", 50);
  });
  c.logit_soft_cap = s.get_or<float>("final_logit_softcapping", 30);
  set_windows(s, c, [](int i) { return i % 2 == 0; });
  return c;
}

// Every sixth layer sees all tokens.
bool gemma3_slides(int layer) { return (layer + 1) % 6 != 0; }

ModelConfig gemma3_hf(const HfSettings& s) {
  s.ignore({"sliding_window_pattern"});
  ModelConfig c = gemma2_hf(s);
  use_qk_norm(c);
  // transformers 4: only the rope of full layers is scaled
  if (c.ropes.size() == 1) add_local_rope(c, s.get_or<double>("rope_local_base_freq", 10000.0));
  for_each_attention(c, [](Attention& a, int) { a.window = a.rope = 0; });
  // EmbeddingGemma: a window of n tokens around a query, n / 2 on each side.
  const bool causal = !s.get_or<bool>("use_bidirectional_attention", false);
  const int window = sliding_window(s, 4096);
  set_windows(s, c, causal || window == 0 ? window : window / 2 + 1, gemma3_slides);
  for_each_attention(c, [&](Attention& a, int) { a.causal = causal; });
  return c;
}

ModelConfig gemma3_gguf(const GgufSettings& s) {
  ModelConfig c = base_gguf(s);
  add_output_norms(c);
  use_qk_norm(c);
  if (c.layers.size() == 62) {  // as above
    for_each_attention(c, [&](Attention& a, int) {
      a.scale = 1 / std::sqrt(static_cast<float>(c.hidden) / static_cast<float>(a.heads));
    });
  }
  c.logit_soft_cap = s.get_or<float>("final_logit_softcapping", 0);
  add_local_rope(c, s.get_or<double>("rope.freq_base_swa", 10000.0));
  set_windows(s, c, gemma3_slides);
  return c;
}

constexpr std::string_view kGemmaNames[] = {"GemmaForCausalLM"}, kGemma2Names[] = {"Gemma2ForCausalLM"},
                           kGemma3Names[] = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"};

}  // namespace

extern const Family kGemma = {"gemma", kGemmaNames, "gemma", gemma_hf, base_gguf};
extern const Family kGemma2 = {"gemma2", kGemma2Names, "gemma2", gemma2_hf, gemma2_gguf, {.names = kFourNorms}};
extern const Family kGemma3 = {
    "gemma3", kGemma3Names, "gemma3", gemma3_hf, gemma3_gguf, {.names = kFourNorms}, {.ignored = kIgnoredGguf}};

}  // namespace quire::gemma
