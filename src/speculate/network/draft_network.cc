#include "speculate/network/draft_network.h"

#include <algorithm>
#include <cassert>

#include "ops/discard_on_error.h"

namespace quire {

std::span<float> TokenNetwork::forward(const DraftPass& pass) {
  const DiscardOnError guard(decoder_.operations());
  return decoder_.forward({pass.rows, pass.spans}, {.layers = layers_, .output = &output_});
}

std::span<float> FeatureNetwork::forward(const DraftPass& pass) {
  const Rows from = pass.predicted ? predictor_.predicted() : target_();
  return predictor_.forward({pass.rows, pass.spans}, from, pass.features, output_);
}

std::span<float> MedusaNetwork::forward(const DraftPass& pass) {
  assert(pass.features.size() == pass.rows.size() && !pass.predicted);
  return medusa_.forward(target_(), pass.features, pass.heads, output_);
}

}  // namespace quire
