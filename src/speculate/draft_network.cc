#include "speculate/draft_network.h"

#include <algorithm>
#include <cassert>

namespace quire {
namespace {

// Row i of the result is row rows[i] of `from`. memory: its own.
Rows gathered(const Rows& from, std::span<const int32_t> rows, std::vector<float>& memory) {
  const auto cols = static_cast<size_t>(from.cols);
  memory.resize(std::max(memory.size(), rows.size() * cols));
  for (size_t i = 0; i < rows.size(); ++i) std::copy_n(from.row(rows[i]), cols, memory.data() + i * cols);
  return {memory.data(), from.cols, cols};
}

}  // namespace

std::span<float> FeatureNetwork::forward(const DraftPass& pass) {
  assert(pass.features.size() == pass.rows.size());
  const Rows from = pass.predicted ? predictor_.predicted() : target_();
  return predictor_.forward({pass.rows, pass.spans}, gathered(from, pass.features, features_), output_);
}

std::span<float> MedusaNetwork::forward(const DraftPass& pass) {
  assert(pass.features.size() == pass.rows.size() && !pass.predicted);
  const Rows features = gathered(target_(), pass.features, features_);
  return medusa_.forward(features, static_cast<int>(pass.rows.size()), pass.heads, output_);
}

}  // namespace quire
