#include "model/loading/check_gates.h"

#include <algorithm>
#include <set>
#include <variant>

#include "base/error.h"

namespace quire {

void check_gates(const Checkpoint& checkpoint, const ModelConfig& config, const Weights& weights) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerWeights& w = weights.layers[i];
    const auto form = [](const Linear& w) { return input_form(Activations::kInt8, w); };
    const auto differ = [&](const ExpertLinears& m) { return m.gate.weight.rows > 0 && form(m.gate) != form(m.up); };
    const auto gates_differ = [](const ExpertLinears& e) {
      return e.gate.weight.rows > 0 && e.gate.transform != e.up.transform;
    };
    const auto unlike_first = [&](const ExpertLinears& e) {
      const ExpertLinears& first = w.moe.experts[0];
      return e.gate.weight.format != first.gate.weight.format || e.up.weight.format != first.up.weight.format ||
             e.down.weight.format != first.down.weight.format;
    };
    if (std::ranges::any_of(w.moe.experts, unlike_first))
      throw unsupported("{}: layer {}: the experts' matrices must have one type", checkpoint.file(), i);
    const auto* mlp = std::get_if<Mlp>(&config.layers[i].ffn);
    const auto* moe = std::get_if<Moe>(&config.layers[i].ffn);
    if (std::ranges::any_of(w.moe.experts, gates_differ) ||
        (mlp && mlp->nonlinearity == Nonlinearity::kClampedSwiglu && gates_differ(w.mlp)) ||
        (moe && moe->nonlinearity == Nonlinearity::kClampedSwiglu && gates_differ(w.moe.shared)))
      throw unsupported(
          "{}: layer {}: the gate and up projections must have one transform of their inputs (g_idx, pre_quant_scale, "
          "transform_config)",
          checkpoint.file(), i);
    const GatedDeltaWeights& delta = w.gated_delta;
    const std::set<const InputTransform*> transforms = {delta.q.transform.get(),     delta.k.transform.get(),
                                                        delta.v.transform.get(),     delta.gate.transform.get(),
                                                        delta.decay.transform.get(), delta.beta.transform.get()};
    if (transforms.size() > kMostTransforms)
      throw unsupported(
          "{}: layer {}: its projections have {} transforms of their inputs (g_idx), but at most {} can differ",
          checkpoint.file(), i, transforms.size(), kMostTransforms);
    if (differ(w.mlp) || differ(w.moe.shared) || std::ranges::any_of(w.moe.experts, differ)) {
      throw unsupported("{}: layer {}: the gate and up projections must be both quantized or both unquantized",
                        checkpoint.file(), i);
    }
  }
}

}  // namespace quire
