// Phi-1, 1.5 and 2: attention and MLP in parallel. Phi-3, 3.5 and 4: Llama with fused matrices and LongRoPE.

#include "model/families.h"

namespace quire::phi {
namespace {

constexpr TensorName kPhiHf[] = {{Tensor::kOutputNorm, "model.final_layernorm.weight"},
                                 {Tensor::kO, "model.layers.{}.self_attn.dense.weight"},
                                 {Tensor::kUp, "model.layers.{}.mlp.fc1.weight"},
                                 {Tensor::kDown, "model.layers.{}.mlp.fc2.weight"}};
constexpr TensorName kPhi3Hf[] = {{Tensor::kQ, "model.layers.{}.self_attn.qkv_proj.weight"},
                                  {Tensor::kK, "model.layers.{}.self_attn.qkv_proj.weight"},
                                  {Tensor::kV, "model.layers.{}.self_attn.qkv_proj.weight"},
                                  {Tensor::kGate, "model.layers.{}.mlp.gate_up_proj.weight"},
                                  {Tensor::kUp, "model.layers.{}.mlp.gate_up_proj.weight"}};
constexpr TensorName kPhi3Gguf[] = {{Tensor::kQ, "blk.{}.attn_qkv.weight"},
                                    {Tensor::kK, "blk.{}.attn_qkv.weight"},
                                    {Tensor::kV, "blk.{}.attn_qkv.weight"},
                                    {Tensor::kGate, "blk.{}.ffn_up.weight"},
                                    {Tensor::kUp, "blk.{}.ffn_up.weight"}};
constexpr std::string_view kIgnoredPhi3[] = {"rope_factors_long.weight", "rope_factors_short.weight"};

void make_parallel(ModelConfig& c, Nonlinearity nonlinearity) {
  use_layer_norm(c, true);
  set_nonlinearity(c, nonlinearity, false);
  use_parallel_layers(c);
}

ModelConfig phi_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  make_parallel(c, nonlinearity_of(s));
  return c;
}
ModelConfig phi_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  make_parallel(c, Nonlinearity::kGeluTanh);
  return c;
}

ModelConfig phi3_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  set_windows(s, c, sliding_window(s, 0), [](int) { return true; });
  return c;
}

std::vector<double> factors(const GgufSettings& s, const char* name) {
  const TensorView* t = s.file().find_tensor(name);
  if (!t || t->type != TensorType::F32) throw invalid("{}: tensor {} is missing or not F32", s.file().file(), name);
  std::vector<float> values(t->bytes.size() / sizeof(float));
  std::copy_n(t->bytes.begin(), t->bytes.size(), reinterpret_cast<std::byte*>(values.data()));
  return {values.begin(), values.end()};
}

ModelConfig phi3_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_windows(s, c, [](int) { return true; });
  if (!s.file().find_tensor("rope_factors_long.weight")) return c;
  RopeConfig& rope = c.ropes[0];
  rope.scaling = RopeConfig::Scaling::kLongRope;
  rope.factor = c.max_positions / rope.original_positions;
  rope.long_factors = factors(s, "rope_factors_long.weight");
  rope.short_factors = factors(s, "rope_factors_short.weight");
  return c;
}

constexpr std::string_view kPhiNames[] = {"PhiForCausalLM"}, kPhi3Names[] = {"Phi3ForCausalLM"};

}  // namespace

extern const Family kPhi = {"phi", kPhiNames, "phi2", phi_hf, phi_gguf, {kPhiHf}};
extern const Family kPhi3 = {"phi3",
                             kPhi3Names,
                             "phi3",
                             phi3_hf,
                             phi3_gguf,
                             {kPhi3Hf, place_concatenated},
                             {kPhi3Gguf, place_concatenated, kIgnoredPhi3}};

}  // namespace quire::phi
