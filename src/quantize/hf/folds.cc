#include "quantize/hf/folds.h"

#include <algorithm>
#include <variant>

namespace quire {
namespace {

bool is_plain(const ModelConfig& config, size_t layer) {
  const LayerSpec& spec = config.layers[layer];
  // Layers whose inputs further branches read.
  return spec.laurel_rank == 0 && config.altup.streams == 0 && config.per_layer_dim == 0 && !spec.joined &&
         (layer == 0 || !config.layers[layer - 1].joined);
}

class LayerFolds {
 public:
  LayerFolds(const ModelConfig& config, int layer)
      : config_(config), spec_(config.layers[static_cast<size_t>(layer)]), layer_(layer) {}

  std::vector<FoldPoint> find() {
    if (!is_plain(config_, static_cast<size_t>(layer_))) return {};
    const auto* const attention = std::get_if<Attention>(&spec_.mixer);
    std::vector<Slot> mixer_readers = attention ? readers_of(*attention) : std::vector<Slot>();
    std::vector<Slot> ffn_readers = std::visit([this](const auto& ffn) { return ffn_readers_of(ffn); }, spec_.ffn);
    if (spec_.shared_norm) {
      if (!mixer_readers.empty() && !ffn_readers.empty()) {
        mixer_readers.insert(mixer_readers.end(), ffn_readers.begin(), ffn_readers.end());
        add_norm(Tensor::kMixerNorm, spec_.mixer_in, std::move(mixer_readers));
      }
    } else {
      add_norm(Tensor::kMixerNorm, spec_.mixer_in, std::move(mixer_readers));
      add_norm(Tensor::kFfnNorm, spec_.ffn_in, std::move(ffn_readers));
    }
    if (attention) add_values(*attention);
    std::visit([this](const auto& ffn) { add_ups(ffn); }, spec_.ffn);
    return std::move(points_);
  }

 private:
  Slot slot(Tensor tensor) const { return {.tensor = tensor, .layer = layer_}; }

  std::vector<Slot> readers_of(const Attention& a) const {
    std::vector<Slot> readers = {slot(Tensor::kQ)};
    if (a.gate) readers.push_back(slot(Tensor::kAttentionGate));
    if (a.shares_cache < 0) {
      readers.push_back(slot(Tensor::kK));
      if (!config_.values_are_keys) readers.push_back(slot(Tensor::kV));
    }
    return readers;
  }

  std::vector<Slot> ffn_readers_of(const std::monostate&) const { return {}; }
  std::vector<Slot> ffn_readers_of(const Mlp& mlp) const {
    std::vector<Slot> readers;
    if (mlp.gated) readers.push_back(slot(Tensor::kGate));
    readers.push_back(slot(Tensor::kUp));
    return readers;
  }
  std::vector<Slot> ffn_readers_of(const Moe& moe) const {
    if (moe.router_in || moe.shared_in) return {};  // norms of their own
    std::vector<Slot> readers = {slot(Tensor::kRouter)};
    for (int e = 0; e < moe.routing.experts; ++e) {
      if (moe.gated) readers.push_back({Tensor::kExpertGate, layer_, e, moe.routing.experts});
      readers.push_back({Tensor::kExpertUp, layer_, e, moe.routing.experts});
    }
    if (moe.shared_size == 0) return readers;
    if (moe.gated) readers.push_back(slot(Tensor::kSharedGate));
    readers.push_back(slot(Tensor::kSharedUp));
    if (moe.shared_gate) readers.push_back(slot(Tensor::kSharedSwitch));
    return readers;
  }

  void add_norm(Tensor tensor, const Norm& norm, std::vector<Slot> readers) {
    if (norm && norm.weight && !readers.empty()) points_.push_back({std::move(readers), slot(tensor)});
  }

  void add_values(const Attention& a) {
    const bool is_shared = std::ranges::any_of(config_.layers, [&](const LayerSpec& layer) {
      const auto* const other = std::get_if<Attention>(&layer.mixer);
      return other && other->shares_cache == layer_;
    });
    if (a.v_norm || a.inner || a.clip != 0 || a.shares_cache >= 0 || is_shared || config_.values_are_keys) return;
    FoldPoint point{{slot(Tensor::kO)}, slot(Tensor::kV), false};
    for (int head = 0; head < a.heads; ++head) {
      for (int i = 0; i < a.value_dim; ++i) point.tied.push_back(head / a.group() * a.value_dim + i);
    }
    points_.push_back(std::move(point));
  }

  void add_ups(const std::monostate&) {}
  void add_ups(const Mlp& mlp) {
    if (mlp.gated && !mlp.inner && mlp.nonlinearity != Nonlinearity::kClampedSwiglu)
      points_.push_back({{slot(Tensor::kDown)}, slot(Tensor::kUp), false});
  }
  void add_ups(const Moe& moe) {
    if (!moe.gated || moe.nonlinearity == Nonlinearity::kClampedSwiglu) return;
    for (int e = 0; e < moe.routing.experts; ++e)
      points_.push_back({{{Tensor::kExpertDown, layer_, e, moe.routing.experts}},
                         {Tensor::kExpertUp, layer_, e, moe.routing.experts},
                         false});
    if (moe.shared_size > 0) points_.push_back({{slot(Tensor::kSharedDown)}, slot(Tensor::kSharedUp), false});
  }

  const ModelConfig& config_;
  const LayerSpec& spec_;
  const int layer_;
  std::vector<FoldPoint> points_;
};

}  // namespace

std::vector<FoldPoint> fold_points(const ModelConfig& config, int layer) { return LayerFolds(config, layer).find(); }

}  // namespace quire
