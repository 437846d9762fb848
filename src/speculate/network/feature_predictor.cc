#include "speculate/network/feature_predictor.h"

#include <cassert>
#include <utility>

#include "model/blocks/blocks.h"
#include "ops/discard_on_error.h"

namespace quire {
namespace {

struct Memory {
  Rows joined, z;
  size_t bytes = 0;
};
// memory: nullptr to count bytes.
Memory carve(const ModelConfig& c, int rows, std::byte* memory) {
  Memory m;
  const auto part = [&](size_t size) {
    const size_t begin = m.bytes;
    m.bytes += (size + 63) / 64 * 64;
    return memory ? memory + begin : nullptr;
  };
  const auto rows_of = [&](int cols) {
    const size_t stride = row_stride(cols);
    return Rows{reinterpret_cast<float*>(part(static_cast<size_t>(rows) * stride * sizeof(float))), cols, stride};
  };
  m.joined = rows_of(2 * c.hidden);
  m.z = rows_of(c.hidden);
  return m;
}

DecoderLimits with_hidden(DecoderLimits limits) {
  if (limits.max_hidden == 0) limits.max_hidden = limits.max_rows;
  return limits;
}

// The layer's own weights with what it takes from the target.
const Weights& complete(Weights& of_layer, const Weights& target) {
  if (of_layer.output_norm.weight.empty()) of_layer.output_norm = target.output_norm;
  return of_layer;
}

}  // namespace

FeaturePredictor::FeaturePredictor(std::shared_ptr<FeatureLayer> layer, const ModelConfig& target,
                                   const Weights& target_weights, CacheMemory& cache, Backend& backend,
                                   Activations activations, DecoderLimits limits, int first_layer)
    : layer_(layer),
      target_(target),
      target_weights_(target_weights),
      decoder_(layer_->config, complete(layer->weights, target_weights), cache, backend, activations,
               with_hidden(limits), first_layer),
      ops_(&decoder_.operations()),
      memory_(backend, carve(layer_->config, limits.max_rows, nullptr).bytes) {
  assert(layer_->config.joined_input && layer_->config.layers.size() == 1);
  const Memory m = carve(layer_->config, limits.max_rows, memory_.data());
  joined_ = m.joined;
  z_ = m.z;
  ids_.reserve(static_cast<size_t>(limits.max_rows));
  rows_.reserve(static_cast<size_t>(limits.max_rows));
}

size_t FeaturePredictor::memory_bytes(const ModelConfig& config, const DecoderLimits& limits) {
  return carve(config, limits.max_rows, nullptr).bytes + Decoder::memory_bytes(config, with_hidden(limits));
}

OperationLimits FeaturePredictor::operation_limits(const ModelConfig& config, const DecoderLimits& limits) {
  return quire::operation_limits(config, with_hidden(limits));
}

const Weights& FeaturePredictor::output_weights() const {
  return layer_->config.joined_input->output ? layer_->weights : target_weights_;
}

// The embeddings of ids_ and the features, to joined_.
void FeaturePredictor::join(const Rows& features, std::span<const int32_t> feature_rows) {
  const JoinedInput& joined = *layer_->config.joined_input;
  const Weights& w = layer_->weights;
  const int hidden = layer_->config.hidden;
  const Rows embedding = joined_.columns(0, hidden), feature = joined_.columns(hidden, hidden);
  ops_->embed((joined.embedding ? w : target_weights_).embedding.weight, ids_, target_.embedding_scale, embedding);
  ops_->gather(features, feature_rows, feature);
  if (!joined.norm) return;
  const auto rows = static_cast<int>(feature_rows.size());
  ops_->normalize(embedding, view(joined.norm, w.join_embedding), {embedding}, rows);
  ops_->normalize(feature, view(joined.norm, w.join_features), {feature}, rows);
}

std::span<float> FeaturePredictor::forward(const Batch& batch, const Rows& features,
                                           std::span<const int32_t> feature_rows, const Linear& output) {
  const auto count = static_cast<int>(batch.rows.size());
  assert(count <= decoder_.limits().max_rows && features.cols == layer_->config.hidden);
  const DiscardOnError guard(*ops_);
  ids_.clear();
  rows_.assign(batch.rows.begin(), batch.rows.end());
  for (Row& row : rows_) ids_.push_back(std::exchange(row.token, kNoToken));
  assert(feature_rows.size() == batch.rows.size());
  join(features, feature_rows);
  const Linear& join = layer_->weights.join;
  const Inputs in = ops_->prepare(joined_, {}, count, {&join});
  ops_->project(in, {.w = &join, .y = z_}, count);
  return decoder_.forward({rows_, batch.spans, z_}, {.output = &output});
}

}  // namespace quire
