#include "speculate/mtp.h"

#include <algorithm>
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

}  // namespace

bool has_predicting_layer(const Checkpoint& checkpoint, const ModelConfig& model) {
  const Spelling& spelling = spelling_of(checkpoint);
  if (!spelling.predicting || !first_attention(model)) return false;
  const ModelConfig layer = layer_of(model);
  const TensorFinder finder(checkpoint, layer, spelling);
  return finder.find(finder.source_of({Tensor::kJoin}).name) != nullptr;
}

std::optional<ModelConfig> predicting_layer(const Checkpoint& checkpoint, const ModelConfig& model) {
  if (!has_predicting_layer(checkpoint, model)) return std::nullopt;
  const Spelling& spelling = spelling_of(checkpoint);
  ModelConfig layer = layer_of(model);
  // Published files repeat the model's matrices.
  const auto differs = [&](Tensor tensor) {
    const TensorFinder of_model(checkpoint, model, spelling), of_layer(checkpoint, layer, spelling);
    const TensorView* const own = of_layer.find(of_layer.source_of({tensor}).name);
    if (!own) return false;
    const Tensor shared = tensor == Tensor::kOutput && model.tied_output ? Tensor::kEmbedding : tensor;
    const TensorView* const models = of_model.find(of_model.source_of({shared}).name);
    if (own == models) return false;
    return !models || own->type != models->type || !std::ranges::equal(own->bytes, models->bytes);
  };
  const bool embedding = differs(Tensor::kEmbedding), output = differs(Tensor::kOutput);
  layer.joined_input->embedding = embedding;
  layer.joined_input->output = output;
  return layer;
}

FeatureLayer read_mtp(const Checkpoint& checkpoint, const ModelConfig& target, Team& team, size_t memory) {
  std::optional<ModelConfig> config = predicting_layer(checkpoint, target);
  if (!config)
    throw unsupported(
        "{} has no layer for multi-token prediction that Quire knows; use --speculative ngram, or a drafter with files "
        "of its own",
        checkpoint.file());
  FeatureLayer layer;
  layer.weights = load_weights(checkpoint, *config, team, {.memory = memory});
  layer.identity = config_identity(*config);  // the target's identity covers its numbers
  layer.config = std::move(*config);
  return layer;
}

}  // namespace quire
