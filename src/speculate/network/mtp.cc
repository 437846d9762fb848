#include "speculate/network/mtp.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "model/families.h"
#include "model/tensor_finder.h"

namespace quire {
namespace {

ModelConfig layer_of(const ModelConfig& model) {
  ModelConfig c = model;
  const auto attends = [](const LayerSpec& layer) { return attention_shape(layer).has_value(); };
  const auto last = std::find_if(model.layers.rbegin(), model.layers.rend(), attends);
  c.layers.assign(1, last == model.layers.rend() ? model.layers.back() : *last);
  c.joined_input = JoinedInput{.norm = model.output_norm, .layer = model.first_predicting};
  c.predicting_layers = 0;
  c.tied_output = false;  // JoinedInput says where its output matrix comes from
  return c;
}

enum class Compare : uint8_t { kNumbers, kHeaders };

// Whether the layer's own matrix, if it has one, is another than the model's.
bool has_own(const Checkpoint& checkpoint, const ModelConfig& model, const ModelConfig& layer, Tensor tensor,
             Compare compare) {
  const Spelling& spelling = spelling_of(checkpoint);
  const TensorFinder of_model(checkpoint, model, spelling), of_layer(checkpoint, layer, spelling);
  const TensorView* const own = of_layer.find(of_layer.source_of({tensor}).name);
  if (!own) return false;
  const Tensor shared = tensor == Tensor::kOutput && model.tied_output ? Tensor::kEmbedding : tensor;
  const TensorView* const models = of_model.find(of_model.source_of({shared}).name);
  if (own == models) return false;
  if (!models || own->type != models->type || compare == Compare::kHeaders) return true;
  return !std::ranges::equal(own->bytes, models->bytes);
}

std::optional<ModelConfig> find_layer(const Checkpoint& checkpoint, const ModelConfig& model, Compare compare) {
  if (!has_predicting_layer(checkpoint, model)) return std::nullopt;
  ModelConfig layer = layer_of(model);
  // Published files repeat the model's matrices.
  const bool embedding = has_own(checkpoint, model, layer, Tensor::kEmbedding, compare),
             output = has_own(checkpoint, model, layer, Tensor::kOutput, compare);
  layer.joined_input->embedding = embedding;
  layer.joined_input->output = output;
  return layer;
}

ModelConfig required_layer(const Checkpoint& checkpoint, const ModelConfig& target, Compare compare) {
  std::optional<ModelConfig> config = find_layer(checkpoint, target, compare);
  if (!config)
    throw unsupported(
        "{} has no layer for multi-token prediction that Quire knows; use --speculative ngram, or a drafter with files "
        "of its own",
        checkpoint.file());
  return std::move(*config);
}

}  // namespace

bool has_predicting_layer(const Checkpoint& checkpoint, const ModelConfig& model) {
  const Spelling& spelling = spelling_of(checkpoint);
  if (!spelling.predicting || !first_attention(model)) return false;
  const ModelConfig layer = layer_of(model);
  const TensorFinder finder(checkpoint, layer, spelling);
  return finder.find(finder.source_of({Tensor::kJoin}).name) != nullptr;
}

std::optional<ModelConfig> predicting_layer(const Checkpoint& checkpoint, const ModelConfig& model) {
  return find_layer(checkpoint, model, Compare::kNumbers);
}

FeatureLayer read_mtp(const Checkpoint& checkpoint, const ModelConfig& target, Backend& backend, Team& team,
                      size_t memory) {
  FeatureLayer layer;
  layer.config = required_layer(checkpoint, target, Compare::kNumbers);
  layer.weights = load_weights(checkpoint, layer.config, backend, team, {.memory = memory});
  layer.identity = config_identity(layer.config);  // the target's identity covers its numbers
  return layer;
}

FeatureTotals check_mtp(const Checkpoint& checkpoint, const ModelConfig& target) {
  FeatureTotals totals;
  totals.config = required_layer(checkpoint, target, Compare::kHeaders);
  const WeightTotals weights = check_weights(checkpoint, totals.config);
  totals.bytes = weights.bytes;
  totals.output = weights.output;
  return totals;
}

}  // namespace quire
