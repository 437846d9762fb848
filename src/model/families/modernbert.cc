// ModernBERT (arXiv 2412.13663): an encoder with norms before its blocks, ropes, gated MLPs, and windows in two of three
// layers.

#include <algorithm>

#include "model/families.h"
#include "model/pooled_output.h"

namespace quire::modernbert {
namespace {

constexpr TensorName kHf[] = {{Tensor::kEmbedding, "model.embeddings.tok_embeddings.weight"},
                              {Tensor::kEmbeddingNorm, "model.embeddings.norm.weight"},
                              {Tensor::kOutputNorm, "model.final_norm.weight"},
                              {Tensor::kMixerNorm, "model.layers.{}.attn_norm.weight"},
                              {Tensor::kQ, "model.layers.{}.attn.Wqkv.weight"},
                              {Tensor::kK, "model.layers.{}.attn.Wqkv.weight"},
                              {Tensor::kV, "model.layers.{}.attn.Wqkv.weight"},
                              {Tensor::kO, "model.layers.{}.attn.Wo.weight"},
                              {Tensor::kFfnNorm, "model.layers.{}.mlp_norm.weight"},
                              {Tensor::kGate, "model.layers.{}.mlp.Wi.weight"},
                              {Tensor::kUp, "model.layers.{}.mlp.Wi.weight"},
                              {Tensor::kDown, "model.layers.{}.mlp.Wo.weight"}};
constexpr TensorName kGguf[] = {{Tensor::kQ, "blk.{}.attn_qkv.weight"},
                                {Tensor::kK, "blk.{}.attn_qkv.weight"},
                                {Tensor::kV, "blk.{}.attn_qkv.weight"},
                                {Tensor::kGate, "blk.{}.ffn_up.weight"},
                                {Tensor::kUp, "blk.{}.ffn_up.weight"}};
constexpr std::string_view kIgnored[] = {"decoder.*", "head.*"};  // they predict masked tokens

constexpr std::string_view kNames[] = {"ModernBertModel", "ModernBertForMaskedLM",
                                       "ModernBertForSequenceClassification"};

void make_encoder(ModelConfig& c, bool bias) {
  use_layer_norm(c, bias);
  c.embedding_norm = c.output_norm;
  c.layers[0].mixer_in = {};  // the embeddings' norm serves
  for_each_attention(c, [](Attention& a, int) { a.causal = false; });
  set_nonlinearity(c, Nonlinearity::kGelu, true);
  c.has_logits = c.tied_output = false;
}

// A window of n tokens around a query has n / 2 on each side. Without types, every `step`th layer sees all tokens.
void set_local_layers(ModelConfig& c, const std::optional<std::vector<std::string>>& types, int window, int step) {
  for_each_attention(c, [&](Attention& a, int layer) {
    if (types ? (*types)[static_cast<size_t>(layer)] == "full_attention" : layer % std::max(1, step) == 0) return;
    a.window = window / 2 + 1;
    a.rope = 1;
  });
}

ModelConfig from_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  make_encoder(c, s.get_or<bool>("norm_bias", false));
  if (c.ropes.size() == 1) {  // transformers 4
    c.ropes.push_back(c.ropes[0]);
    c.ropes[0].theta = s.get_or<double>("global_rope_theta", 160000.0);
    c.ropes[1].theta = s.get_or<double>("local_rope_theta", 10000.0);
  }
  set_local_layers(c, layer_types(s, c, {"full_attention", "sliding_attention"}), s.get_or<int>("local_attention", 128),
                   s.get_or<int>("global_attn_every_n_layers", 3));
  if (!is_classifier(s.files())) return c;
  const auto pooling = s.get_or<std::string>("classifier_pooling", "cls");
  if (pooling != "cls" && pooling != "mean")
    throw unsupported("{}: only cls and mean are supported", s.where("classifier_pooling"));
  c.pooled = {.pooling = pooling == "mean" ? Pooling::kMean : Pooling::kFirst, .labels = read_labels(s.files())};
  c.pooled.layers = {{.name = "head.dense.weight",
                      .size = c.hidden,
                      .nonlinearity = Nonlinearity::kGelu,
                      .norm = c.output_norm,
                      .norm_name = "head.norm.weight"},
                     {.name = "classifier.weight", .size = c.pooled.labels}};
  return c;
}

ModelConfig from_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  s.get_or<bool>("attention.causal", false);
  make_encoder(c, false);
  RopeConfig local = c.ropes[0];
  local.theta = s.get_or<double>("rope.freq_base_swa", 10000.0);
  c.ropes.push_back(local);
  set_local_layers(c, {}, s.get_or<int>("attention.sliding_window", 128),
                   s.get_or<int>("attention.sliding_window_pattern", 3));
  if (s.file().find_tensor("cls.output.weight")) c.pooled.pooling = Pooling::kMean;  // nothing else says so
  return c;
}

}  // namespace

extern const Family kModernBert = {"modernbert",
                                   kNames,
                                   "modern-bert",
                                   from_hf,
                                   from_gguf,
                                   {.names = kHf, .place = place_concatenated, .ignored = kIgnored},
                                   {.names = kGguf, .place = place_concatenated}};

}  // namespace quire::modernbert
