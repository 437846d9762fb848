#include "engine/explain/explain.h"

#include <vector>

#include "base/error.h"
#include "engine/explain/tap.h"
#include "model/decoder.h"
#include "ops/cache_memory.h"

namespace quire {
namespace {

constexpr DecoderLimits kLimits{
    .max_rows = ExplainRequest::kMostTokens, .max_logits = 1, .max_positions = ExplainRequest::kMostTokens};

// Throws Error.
void require_valid(const ExplainRequest& request, const ModelConfig& config) {
  const size_t tokens = request.tokens.size();
  if (tokens < 1 || tokens > ExplainRequest::kMostTokens)
    throw invalid("the text has {} tokens; it must have 1 to {}", tokens, ExplainRequest::kMostTokens);
  for (const TokenId id : request.tokens) {
    if (id < 0 || id >= config.vocab)
      throw invalid("token id {} is outside the vocabulary (0 to {})", id, config.vocab - 1);
  }
  const auto layers = static_cast<int>(config.layers.size());
  if (request.layer < 0 || request.layer >= layers)
    throw invalid("layer {} does not exist; the model has layers 0 to {}", request.layer, layers - 1);
  const auto shape = attention_shape(config.layers[static_cast<size_t>(request.layer)]);
  if (request.head < 0 || (shape && request.head >= shape->heads))
    throw invalid("head {} does not exist; layer {} has heads 0 to {}", request.head, request.layer,
                  shape ? shape->heads - 1 : 0);
}

// A cache of one page and, if the model has recurrent layers, one state.
CacheShape one_page(const CacheLayout& layout) {
  static_assert(ExplainRequest::kMostTokens <= kPageTokens);
  return {layout, static_cast<int>(layout.groups().size()), layout.state_bytes() > 0 ? 1 : 0};
}

size_t memory_bytes(const ModelConfig& config, const CacheShape& cache, const Backend& backend) {
  return Decoder::memory_bytes(config, kLimits) + backend.operations_bytes(operation_limits(config, kLimits)) +
         TapOperations::memory_bytes(config) + static_cast<size_t>(cache.units) * cache.layout.unit_bytes() +
         static_cast<size_t>(cache.states) * cache.layout.state_bytes();
}

Explanation blank(const ExplainRequest& request, const ModelConfig& config) {
  Explanation e;
  e.layers = static_cast<int>(config.layers.size());
  e.layer = request.layer;
  const auto shape = attention_shape(config.layers[static_cast<size_t>(request.layer)]);
  if (!shape) return e;
  e.heads = shape->heads;
  e.head = request.head;
  e.kv_head = request.head / (shape->heads / shape->kv_heads);
  return e;
}

}  // namespace

Explanation explain(const LoadedModel& model, const ExplainRequest& request) {
  const ModelConfig& config = model.target.config;
  require_valid(request, config);
  Explanation e = blank(request, config);
  const auto tokens = static_cast<int>(request.tokens.size());
  TapBackend backend(model.backend(), config, model.target.weights, tokens, e);
  const CacheShape shape = one_page(model.cache.layout);
  const MemoryBudget::Share memory = model.runtime.memory.take([&](size_t left) {
    const size_t bytes = memory_bytes(config, shape, backend);
    if (bytes > left)
      throw no_resource("an explanation takes {} KiB, but only {} KiB are left; lower --kv-cache-size", bytes >> 10,
                        left >> 10);
    return bytes;
  });
  CacheMemory cache(backend, shape);

  std::vector<Row> rows;
  for (int i = 0; i < tokens; ++i)
    rows.push_back({request.tokens[static_cast<size_t>(i)], i, config.has_logits && i + 1 == tokens});
  std::vector<std::vector<int32_t>> tables;
  for (int unit = 0; unit < shape.units; ++unit) tables.push_back({unit});
  const Span span{.row = 0,
                  .rows = tokens,
                  .position = 0,
                  .tables = tables,
                  .state = shape.states - 1,
                  .rope_variant = rope_variant(config.ropes, tokens)};

  const Team::Turn turn(model.runtime.team);
  Decoder decoder(config, model.target.weights, cache, backend, model.plan.activation_type, kLimits);
  const std::span<const float> logits = decoder.forward({rows, {&span, 1}});
  e.logits.assign(logits.begin(), logits.end());
  return e;
}

}  // namespace quire
