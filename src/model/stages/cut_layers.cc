#include "model/stages/cut_layers.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "base/error.h"

namespace quire {
namespace {

// Whether a layer from `layer` on reads the cache of one before it.
bool shares_cache_across(const ModelConfig& config, int layer) {
  for (size_t i = static_cast<size_t>(layer); i < config.layers.size(); ++i) {
    const auto* a = std::get_if<Attention>(&config.layers[i].mixer);
    if (a && a->shares_cache >= 0 && a->shares_cache < layer) return true;
  }
  return false;
}

}  // namespace

bool can_cut_before(const ModelConfig& config, int layer) {
  return can_exit_after(config, layer) && !shares_cache_across(config, layer);
}

size_t stage_bytes(const ModelConfig& config, const WeightTotals& totals, const LayerRange& layers) {
  size_t bytes = 0;
  for (int layer = layers.begin; layer < layers.end; ++layer) bytes += totals.layer_bytes[static_cast<size_t>(layer)];
  if (layers.begin == 0) bytes += totals.input_bytes;
  if (is_last(config, layers)) bytes += totals.output_bytes;
  // A tied output matrix is the embedding; a stage that has both has one copy.
  if (is_last(config, layers) && layers.begin > 0 && config.tied_output) bytes += totals.embedding_bytes;
  return bytes;
}

std::vector<LayerRange> cut_layers(const ModelConfig& config, const WeightTotals& totals, int stages) {
  const auto layers = static_cast<int>(config.layers.size());
  if (stages > layers)
    throw invalid("--pipeline-parallel-size is {}, but the model has {} layers; use at most {}", stages, layers,
                  layers);
  std::vector<int> cuts = {0};  // where a stage may begin; the end
  for (int layer = 1; layer < layers; ++layer)
    if (can_cut_before(config, layer)) cuts.push_back(layer);
  const auto places = static_cast<int>(cuts.size());
  cuts.push_back(layers);
  if (stages > places)
    throw unsupported(
        "--pipeline-parallel-size is {}, but the model can be cut into at most {} stages: its later layers read keys "
        "and values of earlier ones, or more than the result of the layer before; use at most {}",
        stages, places, places);

  // least[n][i]: the most bytes of a stage, at best, if n stages have the layers before cuts[i]; begin[n][i]: where the last of
  // them begins then.
  constexpr size_t kNever = std::numeric_limits<size_t>::max();
  const auto ends = static_cast<size_t>(places) + 1, count = static_cast<size_t>(stages);
  std::vector<std::vector<size_t>> least(count + 1, std::vector<size_t>(ends, kNever)), begin = least;
  least[0][0] = 0;
  for (size_t n = 1; n <= count; ++n) {
    for (size_t i = n; i < ends; ++i) {
      for (size_t j = n - 1; j < i; ++j) {
        if (least[n - 1][j] == kNever) continue;
        const size_t most = std::max(least[n - 1][j], stage_bytes(config, totals, {cuts[j], cuts[i]}));
        if (most >= least[n][i]) continue;
        least[n][i] = most;
        begin[n][i] = j;
      }
    }
  }
  std::vector<LayerRange> ranges(count);
  for (size_t n = count, i = ends - 1; n > 0; --n) {
    const size_t j = begin[n][i];
    ranges[n - 1] = {cuts[j], cuts[i]};
    i = j;
  }
  return ranges;
}

int border_width(const ModelConfig& config, int layer) {
  const int streams = std::max(1, config.altup.streams);
  return streams * config.hidden + config.per_layer_dim * (static_cast<int>(config.layers.size()) - layer);
}

}  // namespace quire
