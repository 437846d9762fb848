// Gemma 3n (its text part): alternating updates, low-rank paths, per-layer embeddings, sparse gates, shared caches.

#include <algorithm>
#include <cmath>

#include "model/families.h"

namespace quire::gemma3n {
namespace {

constexpr TensorName kHf[] = {{Tensor::kFfnNorm, "model.layers.{}.pre_feedforward_layernorm.weight"}};

// How many standard deviations above the mean a share `p` of a normal distribution lies: the quantile, by bisection.
float deviations(double p) {
  double low = -8, high = 8;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return static_cast<float>(low);
}

bool slides(int layer) { return (layer + 1) % 5 != 0; }

ModelConfig from_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  const size_t layers = c.layers.size();
  const auto per_layer = [&]<class T>(const char* key, T fallback) {
    const auto value = s.find(key);
    if (!value) return std::vector<T>(layers, fallback);
    auto list = value->json().is_array() ? value->as<std::vector<T>>() : std::vector<T>(layers, value->as<T>());
    if (list.size() != layers) throw invalid("{}: {} entries for {} layers", s.where(key), list.size(), layers);
    return list;
  };
  const auto mlp_sizes = per_layer("intermediate_size", 0);
  const auto sparsity = per_layer("activation_sparsity_pattern", 0.0);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", true);
  c.embedding_scale = std::sqrt(static_cast<float>(c.hidden));
  c.logit_soft_cap = s.get_or<float>("final_logit_softcapping", 0);
  c.per_layer_dim = s.get<int>("hidden_size_per_layer_input");
  c.altup = {.streams = s.get<int>("altup_num_inputs"),
             .active = s.get_or<int>("altup_active_idx", 0),
             .scales_output = s.get_or<bool>("altup_correct_scale", true)};
  const int laurel_rank = s.get<int>("laurel_rank");
  if (c.altup.streams < 2)
    throw invalid("{} is {}; it must be at least 2", s.where("altup_num_inputs"), c.altup.streams);
  for (size_t i = 0; i < layers; ++i) {
    LayerSpec& layer = c.layers[i];
    layer.mixer_out = layer.ffn_out = layer.mixer_in;
    layer.laurel_rank = laurel_rank;
    auto& mlp = std::get<Mlp>(layer.ffn);
    mlp.size = mlp_sizes[i];
    if (sparsity[i] > 0) mlp.sparsity = deviations(sparsity[i]);
  }
  use_qk_norm(c);
  if (c.ropes.size() == 1) add_local_rope(c, s.get_or<double>("rope_local_base_freq", 10000.0));
  for_each_attention(c, [&](Attention& a, int) {
    a.v_norm = c.output_norm;
    a.v_norm.weight = false;
    a.scale = 1;
  });
  set_windows(s, c, sliding_window(s, 512), slides);
  share_caches(c, s.get_or<int>("num_kv_shared_layers", 0));
  return c;
}

constexpr std::string_view kNames[] = {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"};

}  // namespace

extern const Family kGemma3n = {"gemma3n", kNames, {}, from_hf, nullptr, {kHf}};

}  // namespace quire::gemma3n
