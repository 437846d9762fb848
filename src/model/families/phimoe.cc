// Phi-3.5-MoE: layer norms and biases; SparseMixer weighs each of two experts among those that are near it.

#include "model/families.h"

namespace quire::phimoe {
namespace {

constexpr TensorName kHf[] = {{Tensor::kRouter, "model.layers.{}.block_sparse_moe.gate.weight"},
                              {Tensor::kExpertGate, "model.layers.{}.block_sparse_moe.experts.{e}.w1.weight"},
                              {Tensor::kExpertUp, "model.layers.{}.block_sparse_moe.experts.{e}.w3.weight"},
                              {Tensor::kExpertDown, "model.layers.{}.block_sparse_moe.experts.{e}.w2.weight"}};

// LongRoPE's amplitude is a setting, for short and for long prompts.
void read_amplitude(const HfSettings& s, RopeConfig& rope) {
  if (rope.scaling != RopeConfig::Scaling::kLongRope) return;
  const auto scaling = s.find("rope_scaling");
  const JsonField p = scaling && !scaling->json().empty() ? *scaling : *s.find("rope_parameters");
  const auto amplitude = p.get<double>("short_mscale");
  if (p.get<double>("long_mscale") != amplitude)
    throw unsupported("{}: Quire supports one amplitude only, that of short_mscale", p.where("long_mscale"));
  rope.attention_factor = amplitude;
}

ModelConfig from_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  use_layer_norm(c, true);
  set_windows(s, c, sliding_window(s, 0), [](int) { return true; });
  read_amplitude(s, c.ropes[0]);
  Moe moe = read_moe(s);
  moe.routing.scores = Routing::Scores::kSoftmaxOfNear;
  moe.routing.nearness = 2 * s.get_or<float>("router_jitter_noise", 0.01f);
  set_experts(c, moe);
  return c;
}

constexpr std::string_view kNames[] = {"PhimoeForCausalLM", "PhiMoEForCausalLM"};

}  // namespace

extern const Family kPhiMoe = {"phimoe", kNames, {}, from_hf, nullptr, {kHf}};

}  // namespace quire::phimoe
