#include "engine/drafting/draft_model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "engine/drafting/chain_drafters.h"
#include "engine/drafting/medusa_drafter.h"
#include "model/families.h"
#include "model/registry.h"
#include "speculate/eagle.h"
#include "speculate/mtp.h"
#include "speculate/token_frequency.h"

namespace quire {
namespace {

constexpr int kFrequentTokens = 8192;  // SmolLM2: 97 % of the tokens of its answers

// The drafter's tokens must be the target's.
void check_same_vocabulary(const Model& draft, const Model& target, const std::string& name) {
  const int tokens = target.config.vocab;
  if (draft.config.vocab != tokens)
    throw invalid("--draft-model {} has {} tokens, but the model has {}; use one with the same vocabulary", quote(name),
                  draft.config.vocab, tokens);
  if (!draft.text.tokenizer || !target.text.tokenizer) return;
  for (TokenId id = 0; id < tokens; ++id) {
    const std::string_view mine = draft.text.tokenizer->token_bytes(id);
    const std::string_view theirs = target.text.tokenizer->token_bytes(id);
    if (mine != theirs)
      throw invalid("--draft-model {}: token {} is {}, but {} in the model; use one with the same vocabulary",
                    quote(name), id, quote(mine), quote(theirs));
  }
}

size_t memory_left(const Runtime& runtime, const Model& target) {
  return runtime.memory - std::min(runtime.memory, target.weights.matrix_bytes);
}

std::unique_ptr<DraftModel> load_small_model(const EngineOptions& o, const Model& target, Runtime& runtime,
                                             DraftOutput output) {
  const Checkpoint checkpoint = Checkpoint::open(resolve_model(o.draft_model));
  Model m = read_model(checkpoint);
  check_same_vocabulary(m, target, o.draft_model);
  if (!m.config.has_logits || cache_layout(m.config, KvType::kBf16).state_bytes() > 0)
    throw unsupported("--draft-model {}: its layers must all be attention, and it must generate text",
                      quote(o.draft_model));
  m.weights = load_weights(checkpoint, m.config, runtime.team, {.memory = memory_left(runtime, target)});
  return std::make_unique<SmallModelDrafter>(std::move(m), "draft " + o.draft_model, std::move(output));
}

std::unique_ptr<DraftModel> load_first_layers(const EngineOptions& o, const ModelConfig& target, DraftOutput output) {
  const int layers = static_cast<int>(target.layers.size());
  const int first = o.early_exit_layers > 0 ? o.early_exit_layers : layers * 4 / 5;
  if (first >= layers || !can_exit_after(target, first))
    throw invalid("--early-exit-layers {} is not possible; the model has {} layers{}", first, layers,
                  first < layers ? ", and the next one needs more than this one's result" : "");
  if (cache_layout(target, KvType::kBf16).state_bytes() > 0)
    throw unsupported("--speculative early-exit does not support models with recurrent layers; use ngram");
  return std::make_unique<FirstLayersDrafter>(first, std::move(output));
}

}  // namespace

std::unique_ptr<DraftModel> DraftModel::load(DrafterKind kind, const EngineOptions& o, const Checkpoint& checkpoint,
                                             const Model& target, Runtime& runtime) {
  const ModelConfig& config = target.config;
  DraftOutput output;
  if (!o.draft_vocabulary.empty())
    output =
        DraftOutput(read_token_frequency(o.draft_vocabulary, config.vocab, std::min(kFrequentTokens, config.vocab)));
  switch (kind) {
    case DrafterKind::kEarlyExit:
      return load_first_layers(o, config, std::move(output));
    case DrafterKind::kEagle:
      return std::make_unique<FeatureDrafter>(kind, read_eagle(o.eagle_head, config, runtime.team), std::move(output));
    case DrafterKind::kMtp:
      return std::make_unique<FeatureDrafter>(
          kind, read_mtp(checkpoint, config, runtime.team, memory_left(runtime, target)), std::move(output));
    case DrafterKind::kMedusa:
      return std::make_unique<MedusaDrafter>(read_medusa(o.medusa_heads, config, runtime.team), std::move(output));
    default:
      return load_small_model(o, target, runtime, std::move(output));
  }
}

void DraftModel::keep_features(Sequence& s, uint64_t step, int row, int position, int count) {
  ModelDrafting& d = s.drafting->model;
  d.step = step;
  d.feature = row;
  d.features_at = position;
  d.features = count;
}

void DraftOutput::start(const Weights& weights, Team& team) {
  whole_ = &weights;
  if (!frequent_.empty()) subset_ = take_output_rows(weights, std::move(frequent_), team);
}

}  // namespace quire
