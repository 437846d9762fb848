#include "engine/step/local_executor.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <numeric>
#include <utility>

#include "model/packing/expert_store.h"
#include "model/stages/cut_layers.h"
#include "ops/discard_on_error.h"

namespace quire {
namespace {

constexpr int kPooledTogether = 32;  // rows

}  // namespace

LocalExecutor::LocalExecutor(const ModelConfig& config, const Weights& weights, const CacheShape& shape,
                             Backend& backend, Activations activations, const DecoderLimits& limits,
                             const StageWork& stage)
    : config_(config),
      stage_(stage),
      experts_(weights.experts.get()),
      backend_(backend),
      picks_(backend.picks_logits() && !stage.link),
      cache_(backend, shape),
      decoder_(config, weights, cache_, backend, activations, limits, 0, stage.layers),
      pooled_(backend, kPooledTogether * static_cast<size_t>(config.hidden) * sizeof(float)),
      passes_{Launched{.download = LogitsDownload(backend)}, Launched{.download = LogitsDownload(backend)}} {}

DecoderLimits stage_limits(DecoderLimits limits, bool last) {
  if (!last) limits.max_logits = limits.max_hidden = 0;
  return limits;
}

size_t LocalExecutor::memory_bytes(const ModelConfig& config, const DecoderLimits& limits,
                                   const OperationsBytes& operations) {
  return Decoder::memory_bytes(config, limits) + operations(operation_limits(config, limits)) +
         kPooledTogether * static_cast<size_t>(config.hidden) * sizeof(float);
}

void LocalExecutor::commit(const CacheChanges& changes) {
  const DiscardOnError guard(decoder_.operations());
  if (!changes.advances.empty()) decoder_.advance(changes.advances);
  for (const CacheCopy& copy : changes.copies) cache_.copy(copy);
}

void LocalExecutor::launch(const ForwardInput& input) {
  Launched& first = passes_[first_];
  Launched& pass = first.input ? passes_[1 - first_] : first;
  assert(!pass.input && (!first.input || (!input.picked.empty() && input.changes.empty())));
  if (!input.changes.empty()) commit(input.changes);
  const DiscardOnError guard(decoder_.operations());
  if (input.by_drafter) {
    if (!drafter_) return;  // another stage has it
    output_.logits = drafter_->forward({.rows = input.rows,
                                        .spans = input.spans,
                                        .features = input.features,
                                        .predicted = input.predicted,
                                        .heads = input.heads});
    return;
  }
  const Batch batch{.rows = input.rows, .spans = input.spans, .picked = input.picked};
  if (picks_) {
    decoder_.forward(batch, {.reads_logits = false});
    pass.download.begin(decoder_.operations(), decoder_.logits(), input.picks);
    decoder_.operations().start();
    pass.input = &input;
    return;
  }
  assert(input.picks.empty());
  output_.logits =
      stage_.link ? decoder_.forward(batch, micro_batches(batch, stage_.cut), *stage_.link) : decoder_.forward(batch);
  end_pass(input);
}

const ForwardOutput& LocalExecutor::wait() {
  Launched& pass = passes_[first_];
  if (!pass.input) return output_;
  const ForwardInput& input = *std::exchange(pass.input, nullptr);
  first_ = 1 - first_;
  const bool ahead = passes_[first_].input != nullptr;
  const DiscardOnError guard(decoder_.operations());
  try {
    decoder_.operations().finish_first();
  } catch (...) {
    passes_[first_].input = nullptr;  // the operations have given up both
    throw;
  }
  const auto rows = static_cast<size_t>(std::ranges::count(input.rows, true, &Row::wants_logits));
  pass.download.end(decoder_.logits(), rows, input.picks, ahead, output_);
  end_pass(input);
  return output_;
}

// After its operations: what else it gives.
void LocalExecutor::end_pass(const ForwardInput& input) {
  output_.expert_bytes = decoder_.take_expert_bytes();
  if (experts_) output_.expert_reads = experts_->take_reads();
  if (stage_.link && !is_last(config_, stage_.layers)) return;
  output_.pooled.resize(input.pooled.size());
  for (size_t i = 0; i < input.pooled.size(); ++i) pool(input.pooled[i], output_.pooled[i]);
}

void LocalExecutor::pool(const PooledRows& pooled, std::vector<float>& result) {
  const auto hidden = static_cast<size_t>(config_.hidden);
  assert(pooled.sum.size() == (pooled.apart ? 0 : hidden));
  result = pooled.sum;
  if (pooled.apart) result.reserve(static_cast<size_t>(pooled.rows) * hidden);
  for (int begin = 0; begin < pooled.rows; begin += kPooledTogether) {
    std::array<int32_t, kPooledTogether> rows{};
    const auto count = static_cast<size_t>(std::min(pooled.rows - begin, kPooledTogether));
    std::iota(rows.begin(), rows.end(), pooled.row + begin);
    auto* const data = reinterpret_cast<float*>(pooled_.data());
    decoder_.final_hidden(std::span(rows).first(count), {data, config_.hidden, hidden});
    decoder_.operations().finish();
    const std::span<float> states = view_floats(backend_, data, count * hidden, host_pooled_);
    if (pooled.apart) {
      result.insert(result.end(), states.begin(), states.end());
    } else {
      for (size_t i = 0; i < states.size(); ++i) result[i % hidden] += states[i];
    }
  }
  if (pooled.apart || !pooled.last || config_.pooled.layers.empty()) return;
  for (float& x : result) x /= pooled.divisor;
  std::vector<float> scores(static_cast<size_t>(pooled_size(config_)));
  decoder_.pool(result, scores);
  result = std::move(scores);
}

}  // namespace quire
