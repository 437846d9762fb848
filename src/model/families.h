// Model families: how a checkpoint's names and settings map to ModelConfig. Each family has a row in families.cc and its
// code in families/.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"
#include "model/config.h"
#include "model/settings.h"
#include "model/tensors.h"

namespace quire {

struct Family {
  std::string_view name;
  std::span<const std::string_view> hf_architectures;  // config.json: architectures[0]
  std::string_view gguf_architecture;                  // general.architecture; empty: none
  ModelConfig (*from_hf)(const HfSettings& settings);
  ModelConfig (*from_gguf)(const GgufSettings& settings);
  Spelling hf = {}, gguf = {};
};

std::span<const Family* const> families();

// What documents say about each of families().
struct FamilyDescription {
  std::string_view models, cache;
};
std::span<const FamilyDescription> family_descriptions();

// The family of a checkpoint. Throws Error (kUnsupported) that lists the known ones.
const Family& find_family(const Checkpoint& checkpoint);
const Spelling& spelling_of(const Checkpoint& checkpoint);

// The validated configuration of a checkpoint. Throws Error: unknown family, or settings that are out of range.
ModelConfig read_model_config(const Checkpoint& checkpoint);
// That of a config.json without the model's tensors, which say more about a few models; file: names it in messages.
// Nothing: no family has its architecture. Throws Error likewise.
std::optional<ModelConfig> read_model_config(const HfConfig& files, const std::string& file);

// ---- for the families' own readers (families/base_hf.cc, base_gguf.cc, changes.cc)

// What most decoders have in common, under any of the usual names: layers that are all alike, with RMS norms before
// attention and before a gated MLP, and rotary positions.
ModelConfig read_base(const HfSettings& settings);
ModelConfig read_base(const GgufSettings& settings);

template <class F>
void for_each_attention(ModelConfig& config, F f) {  // f(attention, layer)
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (auto* attention = std::get_if<Attention>(&config.layers[i].mixer)) f(*attention, static_cast<int>(i));
  }
}
template <class F>
void for_each_mlp(ModelConfig& config, F f) {
  for (LayerSpec& layer : config.layers) {
    if (auto* mlp = std::get_if<Mlp>(&layer.ffn)) f(*mlp);
  }
}
// Replaces the norms of all layers and the output norm.
void use_layer_norm(ModelConfig& config, bool bias);
// The last `count` layers read the cache of the last layer before them that has the same window (Gemma 3n and 4).
void share_caches(ModelConfig& config, int count);
// Norms like those before attention and MLP also follow them (Gemma 2).
void add_output_norms(ModelConfig& config);
// Norms come after attention and MLP, not before (OLMo 2).
void use_post_norms_only(ModelConfig& config);
// Queries and keys of each head are normalised as the layers' inputs are.
void use_qk_norm(ModelConfig& config);
// An embedding for each position instead of ropes.
void use_learned_positions(ModelConfig& config);
void set_rope_kind(ModelConfig& config, RopeKind kind);
void set_nonlinearity(ModelConfig& config, Nonlinearity nonlinearity, bool gated);
// Attention and MLP read the result of one norm, and both are added to the layer's input.
void use_parallel_layers(ModelConfig& config);
// Positions lower the scores of attention; no rope.
void use_alibi(ModelConfig& config);
// A second rope without scaling, for layers with a window.
void add_local_rope(ModelConfig& config, double theta);

// What kind of layer each is (layer_types); std::nullopt: the file does not say. Throws Error for one not in `known`.
std::optional<std::vector<std::string>> layer_types(const HfSettings& settings, const ModelConfig& config,
                                                    std::initializer_list<std::string_view> known);
// The layers that slide, by `layer_types` (transformers 5) or where `slides` says so (transformers 4). With two ropes,
// sliding layers use the second.
void set_windows(const HfSettings& settings, ModelConfig& config, int window, bool (*slides)(int layer));
void set_windows(const GgufSettings& settings, ModelConfig& config, bool (*slides)(int layer));
int sliding_window(const HfSettings& settings, int fallback);  // 0 (in the file also null): none

// The rotary parameters of one object of config.json: rope_scaling or rope_parameters, or one for a kind of layers.
RopeConfig read_rope(const HfSettings& settings, const std::optional<JsonField>& parameters, int head_dim);
// YaRN's factor for scores and cosines (arXiv 2309.00071): 0.1 * scale * ln(factor) + 1.
double yarn_amplitude(double factor, double scale);

Nonlinearity nonlinearity_of(const HfSettings& settings);
// A mixture of experts with the usual keys.
Moe read_moe(const HfSettings& settings);
Moe read_moe(const GgufSettings& settings);
// The layers from `first` on have experts.
void set_experts(ModelConfig& config, const Moe& moe, int first = 0);
// Layers for multi-token prediction follow the model's. A model is loaded without them; GGUF files count them as layers.
void read_predicting_layers(const HfSettings& settings, ModelConfig& config);
void drop_predicting_layers(const GgufSettings& settings, ModelConfig& config);
// Every `decoder_sparse_step`th layer has experts, except those in mlp_only_layers (Qwen).
void set_sparse_layers(const HfSettings& settings, ModelConfig& config, const Moe& moe);
// Granite's multipliers of embeddings, residuals, scores and logits.
void set_granite_multipliers(const HfSettings& settings, ModelConfig& config);
void set_granite_multipliers(const GgufSettings& settings, ModelConfig& config);
// Files can bound the step sizes of Mamba-2 (time_step_limit); those of published models do not.
void refuse_bounded_steps(const HfSettings& settings);

Mamba2 read_mamba2(const GgufSettings& settings, const ModelConfig& config);

// Tensors that hold several matrices, one after the other: [q; k; v], named as kQ, and [gate; up], named as kGate.
void place_concatenated(const ModelConfig& config, const Slot& slot, Source& source);
// For files that number layers otherwise: the name of a layer's tensor gets that number.
void renumber_layer(const Slot& slot, int number, Source& source);
// Queries, keys and values in one tensor, group by group: the queries of a KV head, its key, its value.
void place_grouped(const ModelConfig& config, const Slot& slot, Source& source);
inline constexpr TensorName kSharedExpertsHf[] = {
    {Tensor::kSharedGate, "model.layers.{}.mlp.shared_experts.gate_proj.weight"},
    {Tensor::kSharedUp, "model.layers.{}.mlp.shared_experts.up_proj.weight"},
    {Tensor::kSharedDown, "model.layers.{}.mlp.shared_experts.down_proj.weight"}};
// Layers for multi-token prediction whose numbers follow the model's (DeepSeek-V3, GLM-4.5).
inline constexpr TensorName kNumberedPredictingNames[] = {
    {Tensor::kEmbedding, "model.layers.{}.embed_tokens.weight"},
    {Tensor::kJoinEmbeddingNorm, "model.layers.{}.enorm.weight"},
    {Tensor::kJoinFeatureNorm, "model.layers.{}.hnorm.weight"},
    {Tensor::kJoin, "model.layers.{}.eh_proj.weight"},
    {Tensor::kOutputNorm, "model.layers.{}.shared_head.norm.weight"},
    {Tensor::kOutput, "model.layers.{}.shared_head.head.weight"}};
inline constexpr PredictingSpelling kNumberedPredictingHf = {kNumberedPredictingNames, "model.layers.{}."};
// GGUF files of all families number these layers this way.
inline constexpr TensorName kPredictingNamesGguf[] = {{Tensor::kEmbedding, "blk.{}.nextn.embed_tokens.weight"},
                                                      {Tensor::kJoinEmbeddingNorm, "blk.{}.nextn.enorm.weight"},
                                                      {Tensor::kJoinFeatureNorm, "blk.{}.nextn.hnorm.weight"},
                                                      {Tensor::kJoin, "blk.{}.nextn.eh_proj.weight"},
                                                      {Tensor::kOutputNorm, "blk.{}.nextn.shared_head_norm.weight"},
                                                      {Tensor::kOutput, "blk.{}.nextn.shared_head_head.weight"}};
inline constexpr PredictingSpelling kPredictingGguf = {kPredictingNamesGguf, "blk.{}."};
inline constexpr TensorName kFusedQkvGguf[] = {{Tensor::kQ, "blk.{}.attn_qkv.weight"},
                                               {Tensor::kK, "blk.{}.attn_qkv.weight"},
                                               {Tensor::kV, "blk.{}.attn_qkv.weight"}};

}  // namespace quire
