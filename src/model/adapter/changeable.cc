#include "model/adapter/changeable.h"

#include <variant>

namespace quire {

bool is_changeable(const ModelConfig& config, const Slot& slot) {
  if (slot.layer < 0) return false;
  const LayerSpec& layer = config.layers[static_cast<size_t>(slot.layer)];
  switch (slot.tensor) {
    case Tensor::kQ:
    case Tensor::kK:
    case Tensor::kV:
    case Tensor::kO:
    case Tensor::kAttentionGate:
      return std::holds_alternative<Attention>(layer.mixer);
    case Tensor::kUp: {  // without a gate, the nonlinearity is part of its product
      const auto* mlp = std::get_if<Mlp>(&layer.ffn);
      return mlp && mlp->gated;
    }
    case Tensor::kGate:
    case Tensor::kDown:
      return std::holds_alternative<Mlp>(layer.ffn);
    default:
      return false;
  }
}

}  // namespace quire
