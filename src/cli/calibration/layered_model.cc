#include "cli/calibration/layered_model.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cli/calibration/calibrate.h"
#include "cli/text/chunk_run.h"
#include "engine/step/local_executor.h"
#include "model/registry.h"
#include "model/stages/cut_layers.h"

namespace quire {
namespace {

// The plan of the whole model in this process: its limits and the form of its cache. It need not fit.
MemoryPlan plan_of_all_layers(const ModelFacts& facts, const EngineOptions& options, Runtime& runtime) {
  constexpr size_t kAnySize = size_t{1} << 50;
  return plan_memory(facts, options, runtime.machine(kAnySize), kScoredRows);
}

void warn(const std::string& text) { spdlog::warn("{}", text); }

}  // namespace

LayeredModel::LayeredModel(EngineOptions engine, int context, const std::filesystem::path& folder)
    : options_(one_chunk_at_a_time(std::move(engine), context)),
      runtime_(options_),
      checkpoint_(Checkpoint::open(resolve_model(options_.model))),
      facts_(read_model_facts(checkpoint_, options_)),
      shapes_(read_weight_shapes(checkpoint_, config())),
      text_(load_model_text(checkpoint_)),
      chat_template_(parse_chat_template(text_, checkpoint_.file() + ": chat template")),
      plan_(plan_of_all_layers(facts_, options_, runtime_)),
      rows_(folder, border_width(config(), 0)) {
  if (!config().has_logits)
    throw unsupported("{} does not generate text; it can only embed or score it", options_.model);
  check_vocabulary(checkpoint_, text_, config());
  for (const std::string& warning : config().warnings) warn(warning);
  if (text_.tokenizer) std::ranges::for_each(text_.tokenizer->warnings(), warn);
}

TextChunks LayeredModel::read_text(const std::string& file, int most) const {
  return read_chunks(text_, chat_template_, options_.model, file, options_.max_model_len, most);
}

LayerRange LayeredModel::part_from(int first, size_t weights, size_t others,
                                   const std::function<size_t(int layer)>& other) const {
  LayerRange part{first, first};
  size_t sum = 0;
  for (int end = first + 1; end <= layers(); ++end) {
    sum += other(end - 1);
    if (end < layers() && !can_cut_before(config(), end)) continue;
    const bool fits = sum <= others && stage_bytes(config(), facts_.weights, {first, end}) <= weights;
    if (!fits && part.end > first) break;
    part.end = end;
    if (!fits) break;
  }
  return part;
}

void LayeredModel::run(const LayerRange& part, const TextChunks& text, bool all_logits,
                       const std::function<InputObserver&(const Weights& weights)>& observe,
                       const std::function<void(size_t computed, size_t total)>& progress) {
  const Weights weights = load_weights(checkpoint_, config(), runtime_.cpu, runtime_.team,
                                       {.memory = runtime_.memory.bytes(),
                                        .warn = std::exchange(has_warned_, true) ? PackFile::Warn() : warn,
                                        .part = {part}});
  const bool last = is_last(config(), part);
  const CacheShape all{plan_.layout, plan_.cache.units, plan_.cache.states};
  const CacheShape own{plan_.layout.of_layers(part.begin, part.end), all.units, all.states};
  LocalExecutor executor(config(), weights, own, runtime_.cpu, plan_.activation_type, stage_limits(plan_.limits, last),
                         StageWork{part, &rows_, {}});
  SingleSequence sequence({executor, config(), all, plan_.cache.max_model_len});
  calibrate(sequence, executor.decoder().operations(), text,
            {.rows = last && all_logits ? kScoredRows : options_.max_num_batched_tokens,
             .all_logits = last && all_logits,
             .begin = [this](size_t row) { rows_.begin_step(row); }},
            observe(weights), progress);
}

}  // namespace quire
