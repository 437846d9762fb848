#include "plan/rank_times.h"

#include <cassert>
#include <utility>

namespace quire {

RankExchange rank_exchange(const ModelConfig& config, int ranks) {
  assert(ranks >= 1);
  RankExchange exchange;
  if (ranks == 1) return exchange;
  const double others = (ranks - 1.0) / ranks * sizeof(float);
  double columns = 0;
  for (const LayerSpec& layer : config.layers) {
    const auto attention = attention_shape(layer);
    const int heads = attention ? attention->heads * attention->value_dim : config.hidden;
    columns += heads + 2.0 * config.hidden + widest_ffn(config);
    exchange.gathers += 4;
  }
  exchange.bytes_per_row = columns * others;
  if (!config.has_logits) return exchange;
  ++exchange.gathers;
  exchange.bytes_per_logits = config.vocab * others;
  return exchange;
}

StepSeconds with_ranks(StepSeconds one, const RankExchange& exchange, int ranks, double latency, double bandwidth) {
  if (ranks == 1) return one;
  return [one = std::move(one), exchange, ranks, latency, bandwidth](const StepLoad& load) {
    return one(load) / ranks + exchange.gathers * latency + exchange.bytes(load) / bandwidth;
  };
}

}  // namespace quire
