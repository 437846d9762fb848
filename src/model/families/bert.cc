// Encoders: BERT, RoBERTa and XLM-R, DistilBERT, and Nomic's BERT with rope and gated MLPs. Tokens see the whole prompt,
// and norms come after the sums. Their files for sequence classification add a classifier on the first token.

#include <algorithm>

#include "model/families.h"
#include "model/pooled_output.h"

namespace quire::bert {
namespace {

constexpr TensorName kBertHf[] = {{Tensor::kEmbedding, "embeddings.word_embeddings.weight"},
                                  {Tensor::kPositions, "embeddings.position_embeddings.weight"},
                                  {Tensor::kEmbeddingNorm, "embeddings.LayerNorm.weight"},
                                  {Tensor::kQ, "encoder.layer.{}.attention.self.query.weight"},
                                  {Tensor::kK, "encoder.layer.{}.attention.self.key.weight"},
                                  {Tensor::kV, "encoder.layer.{}.attention.self.value.weight"},
                                  {Tensor::kO, "encoder.layer.{}.attention.output.dense.weight"},
                                  {Tensor::kMixerOutNorm, "encoder.layer.{}.attention.output.LayerNorm.weight"},
                                  {Tensor::kUp, "encoder.layer.{}.intermediate.dense.weight"},
                                  {Tensor::kDown, "encoder.layer.{}.output.dense.weight"},
                                  {Tensor::kFfnOutNorm, "encoder.layer.{}.output.LayerNorm.weight"}};
constexpr TensorName kDistilHf[] = {{Tensor::kEmbedding, "embeddings.word_embeddings.weight"},
                                    {Tensor::kPositions, "embeddings.position_embeddings.weight"},
                                    {Tensor::kEmbeddingNorm, "embeddings.LayerNorm.weight"},
                                    {Tensor::kQ, "transformer.layer.{}.attention.q_lin.weight"},
                                    {Tensor::kK, "transformer.layer.{}.attention.k_lin.weight"},
                                    {Tensor::kV, "transformer.layer.{}.attention.v_lin.weight"},
                                    {Tensor::kO, "transformer.layer.{}.attention.out_lin.weight"},
                                    {Tensor::kMixerOutNorm, "transformer.layer.{}.sa_layer_norm.weight"},
                                    {Tensor::kUp, "transformer.layer.{}.ffn.lin1.weight"},
                                    {Tensor::kDown, "transformer.layer.{}.ffn.lin2.weight"},
                                    {Tensor::kFfnOutNorm, "transformer.layer.{}.output_layer_norm.weight"}};
constexpr TensorName kNomicHf[] = {
    {Tensor::kEmbedding, "embeddings.word_embeddings.weight"}, {Tensor::kEmbeddingNorm, "emb_ln.weight"},
    {Tensor::kQ, "encoder.layers.{}.attn.Wqkv.weight"},        {Tensor::kK, "encoder.layers.{}.attn.Wqkv.weight"},
    {Tensor::kV, "encoder.layers.{}.attn.Wqkv.weight"},        {Tensor::kO, "encoder.layers.{}.attn.out_proj.weight"},
    {Tensor::kMixerOutNorm, "encoder.layers.{}.norm1.weight"}, {Tensor::kUp, "encoder.layers.{}.mlp.fc11.weight"},
    {Tensor::kGate, "encoder.layers.{}.mlp.fc12.weight"},      {Tensor::kDown, "encoder.layers.{}.mlp.fc2.weight"},
    {Tensor::kFfnOutNorm, "encoder.layers.{}.norm2.weight"}};
constexpr TensorName kGguf[] = {{Tensor::kMixerOutNorm, "blk.{}.attn_output_norm.weight"},
                                {Tensor::kFfnOutNorm, "blk.{}.layer_output_norm.weight"}};
constexpr TensorName kNomicGguf[] = {{Tensor::kQ, "blk.{}.attn_qkv.weight"},
                                     {Tensor::kK, "blk.{}.attn_qkv.weight"},
                                     {Tensor::kV, "blk.{}.attn_qkv.weight"},
                                     {Tensor::kMixerOutNorm, "blk.{}.attn_output_norm.weight"},
                                     {Tensor::kFfnOutNorm, "blk.{}.layer_output_norm.weight"}};
// Heads for other tasks.
constexpr std::string_view kIgnored[] = {"pooler.*",  "bert.pooler.*",     "roberta.pooler.*",  "cls.*",
                                         "lm_head.*", "vocab_projector.*", "vocab_transform.*", "vocab_layer_norm.*"};

// From a decoder's usual layers to an encoder's.
void make_encoder(ModelConfig& c, float epsilon, bool gated) {
  c.embedding_norm = {.kind = NormKind::kLayer, .epsilon = epsilon, .bias = true};
  c.output_norm = {};
  for (LayerSpec& layer : c.layers) {
    layer.mixer_in = layer.ffn_in = {};
    layer.mixer_out = layer.ffn_out = c.embedding_norm;
    layer.norm_sums = true;
    std::get<Mlp>(layer.ffn).gated = gated;
  }
  for_each_attention(c, [](Attention& a, int) { a.causal = false; });
  c.has_logits = c.tied_output = false;
}

// The classifier: a linear with a nonlinearity on the first token, then one with a result for each class.
void add_classifier(const HfSettings& s, ModelConfig& c, PooledLayer first, const char* last) {
  if (!is_classifier(s.files())) return;
  c.pooled = {.pooling = Pooling::kFirst, .labels = read_labels(s.files())};
  first.size = c.hidden;
  c.pooled.layers = {first, {.name = last, .size = c.pooled.labels}};
}

ModelConfig read_encoder(const HfSettings& s) {
  if (s.get_or<std::string>("position_embedding_type", "absolute") != "absolute")
    throw unsupported("{}: only absolute is supported", s.where("position_embedding_type"));
  ModelConfig c = read_base(s);
  make_encoder(c, s.get_or<float>("layer_norm_eps", 1e-12f), false);
  use_learned_positions(c);
  c.segments = s.get_or<int>("type_vocab_size", 2);
  return c;
}
ModelConfig bert_hf(const HfSettings& s) {
  ModelConfig c = read_encoder(s);
  add_classifier(s, c, {.name = "bert.pooler.dense.weight", .tanh = true}, "classifier.weight");
  return c;
}
// Positions begin after the padding token's id.
ModelConfig roberta_hf(const HfSettings& s) {
  ModelConfig c = read_encoder(s);
  c.first_position = s.get_or<int>("pad_token_id", 1) + 1;
  c.max_positions -= c.first_position;
  add_classifier(s, c, {.name = "classifier.dense.weight", .tanh = true}, "classifier.out_proj.weight");
  return c;
}
ModelConfig distil_hf(const HfSettings& s) {
  s.ignore({"sinusoidal_pos_embds"});  // the positions are in the file
  ModelConfig c = read_base(s);
  make_encoder(c, 1e-12f, false);
  use_learned_positions(c);
  add_classifier(s, c, {.name = "pre_classifier.weight", .nonlinearity = Nonlinearity::kRelu}, "classifier.weight");
  return c;
}
ModelConfig nomic_hf(const HfSettings& s) {
  for (const char* key : {"prenorm", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "parallel_block",
                          "rotary_emb_interleaved", "use_rms_norm", "rotary_scaling_factor"}) {
    if (const auto value = s.find(key); value && value->json() != false)
      throw unsupported("{}: {} is not supported", s.where(key), value->json().dump());
  }
  ModelConfig c = read_base(s);
  make_encoder(c, s.get_or<float>("layer_norm_epsilon", 1e-12f), true);
  c.segments = s.get_or<int>("type_vocab_size", 2);
  return c;
}

ModelConfig read_encoder(const GgufSettings& s, bool gated) {
  ModelConfig c = read_base(s);
  if (s.get_or<bool>("attention.causal", false))
    throw unsupported("{}: true is not supported", s.where("attention.causal"));
  make_encoder(c, c.output_norm.epsilon, gated);
  const TensorView* segments = s.file().find_tensor("token_types.weight");
  c.segments =
      segments && !segments->shape.empty() ? static_cast<int>(std::min<uint64_t>(segments->shape[0], 1u << 20)) : 0;
  return c;
}
ModelConfig bert_gguf(const GgufSettings& s) {
  ModelConfig c = read_encoder(s, false);
  use_learned_positions(c);
  set_nonlinearity(c, Nonlinearity::kGelu, false);
  return c;
}
ModelConfig nomic_gguf(const GgufSettings& s) { return read_encoder(s, true); }

void place_positions(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.tensor != Tensor::kPositions || c.first_position == 0) return;
  source.first = c.first_position;
  source.rows = c.max_positions + c.first_position;
}

// Queries, keys and values are in one tensor, gates and ups are not.
void place_nomic(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.tensor == Tensor::kQ || slot.tensor == Tensor::kK || slot.tensor == Tensor::kV)
    place_concatenated(c, slot, source);
}

constexpr std::string_view kBertNames[] = {"BertModel", "BertForMaskedLM", "BertForSequenceClassification"},
                           kRobertaNames[] = {"RobertaModel",
                                              "RobertaForMaskedLM",
                                              "RobertaForSequenceClassification",
                                              "XLMRobertaModel",
                                              "XLMRobertaForMaskedLM",
                                              "XLMRobertaForSequenceClassification"},
                           kDistilNames[] = {"DistilBertModel", "DistilBertForMaskedLM",
                                             "DistilBertForSequenceClassification"},
                           kNomicNames[] = {"NomicBertModel"};

}  // namespace

extern const Family kBert = {"bert",          kBertNames, "bert",
                             bert_hf,         bert_gguf,  {.names = kBertHf, .ignored = kIgnored, .prefix = "bert."},
                             {.names = kGguf}};
extern const Family kRoberta = {
    "roberta",  kRobertaNames, {},
    roberta_hf, nullptr,       {.names = kBertHf, .place = place_positions, .ignored = kIgnored, .prefix = "roberta."}};
extern const Family kDistilBert = {"distilbert", kDistilNames,
                                   {},           distil_hf,
                                   nullptr,      {.names = kDistilHf, .ignored = kIgnored, .prefix = "distilbert."}};
extern const Family kNomicBert = {"nomic_bert",
                                  kNomicNames,
                                  "nomic-bert",
                                  nomic_hf,
                                  nomic_gguf,
                                  {.names = kNomicHf, .place = place_nomic, .ignored = kIgnored},
                                  {.names = kNomicGguf, .place = place_nomic}};

}  // namespace quire::bert
