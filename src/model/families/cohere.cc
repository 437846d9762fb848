// Command-R (Cohere) and Command-R7B (Cohere 2): attention and MLP in parallel after one layer norm without bias, scaled
// logits. Cohere 2 rotates positions in its sliding layers only.

#include "model/families.h"

namespace quire::cohere {
namespace {

void make_parallel(ModelConfig& c) {
  use_layer_norm(c, false);
  set_rope_kind(c, RopeKind::kNeighbours);
  use_parallel_layers(c);
}

void use_norms_of_heads(ModelConfig& c) {
  for_each_attention(c, [&](Attention& a, int) {
    a.q_norm = a.k_norm = c.output_norm;
    a.norm_per_head = true;
  });
}

void rotate_sliding_layers_only(ModelConfig& c) {
  for_each_attention(c, [](Attention& a, int) { a.rope = a.window > 0 ? 0 : -1; });
}

bool slides(int layer) { return (layer + 1) % 4 != 0; }

ModelConfig cohere_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", true);
  make_parallel(c);
  c.logit_scale = s.get_or<float>("logit_scale", 0.0625f);
  if (s.get_or<bool>("use_qk_norm", false)) use_norms_of_heads(c);
  return c;
}
ModelConfig cohere_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  make_parallel(c);
  c.logit_scale = s.get_or<float>("logit_scale", 1);
  if (s.file().find_tensor("blk.0.attn_q_norm.weight")) use_norms_of_heads(c);
  return c;
}

ModelConfig cohere2_hf(const HfSettings& s) {
  s.ignore({"sliding_window_pattern"});
  ModelConfig c = cohere_hf(s);
  set_windows(s, c, sliding_window(s, 4096), slides);
  rotate_sliding_layers_only(c);
  return c;
}
ModelConfig cohere2_gguf(const GgufSettings& s) {
  ModelConfig c = cohere_gguf(s);
  set_windows(s, c, slides);
  rotate_sliding_layers_only(c);
  return c;
}

constexpr std::string_view kCohereNames[] = {"CohereForCausalLM"}, kCohere2Names[] = {"Cohere2ForCausalLM"};
constexpr std::string_view kIgnored[] = {"rope_freqs.weight"};

}  // namespace

extern const Family kCohere = {"cohere", kCohereNames, "command-r", cohere_hf, cohere_gguf};
extern const Family kCohere2 = {"cohere2", kCohere2Names,        "cohere2", cohere2_hf, cohere2_gguf,
                                {},        {.ignored = kIgnored}};

}  // namespace quire::cohere
