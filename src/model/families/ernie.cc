// ERNIE 4.5: Llama with rope of neighbours; its mixtures of experts.

#include <algorithm>
#include <utility>

#include "model/families.h"

namespace quire::ernie {
namespace {

void place_moe(const ModelConfig&, const Slot& slot, Source& source) {
  if (slot.tensor == Tensor::kRouterCorrection)
    source.name = "model.layers." + std::to_string(slot.layer) + ".mlp.moe_statics.e_score_correction_bias";
}
constexpr std::string_view kPredicting[] = {"model.mtp_*"};  // layers for predicting several tokens

ModelConfig dense_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", true);
  set_rope_kind(c, RopeKind::kNeighbours);
  return c;
}
ModelConfig dense_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_rope_kind(c, RopeKind::kNeighbours);
  return c;
}

// Experts are chosen with a bias, and weighed by their share of the softmax. Every `step`th layer from `first` to `last`
// has them.
void set_experts_between(ModelConfig& c, Moe moe, int shared, int first, int last, int step) {
  moe.correction = true;
  moe.shared_size = shared * moe.size;
  for (int i = std::max(0, first); i <= last && std::cmp_less(i, c.layers.size()); ++i) {
    if ((i + 1) % std::max(1, step) == 0) c.layers[static_cast<size_t>(i)].ffn = moe;
  }
}
ModelConfig moe_hf(const HfSettings& s) {
  ModelConfig c = dense_hf(s);
  const int end = static_cast<int>(c.layers.size()) - 1, last = s.get_or<int>("moe_layer_end_index", -1);
  set_experts_between(c, read_moe(s), s.get_or<int>("moe_num_shared_experts", 0),
                      s.get_or<int>("moe_layer_start_index", 1), last < 0 ? end : last,
                      s.get_or<int>("moe_layer_interval", 1));
  return c;
}
ModelConfig moe_gguf(const GgufSettings& s) {
  ModelConfig c = dense_gguf(s);
  const int end = static_cast<int>(c.layers.size()) - 1;
  set_experts_between(c, read_moe(s), s.get_or<int>("expert_shared_count", 0),
                      s.get_or<int>("leading_dense_block_count", 0), end,
                      s.get_or<int>("interleave_moe_layer_step", 1));
  return c;
}

constexpr std::string_view kNames[] = {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"},
                           kMoeNames[] = {"Ernie4_5_MoeForCausalLM"};

}  // namespace

extern const Family kErnie = {"ernie4_5", kNames, "ernie4_5", dense_hf, dense_gguf};
extern const Family kErnieMoe = {"ernie4_5_moe", kMoeNames, "ernie4_5-moe",
                                 moe_hf,         moe_gguf,  {kSharedExpertsHf, place_moe, kPredicting}};

}  // namespace quire::ernie
