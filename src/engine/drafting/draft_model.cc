#include "engine/drafting/draft_model.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"
#include "engine/drafting/chain_drafters.h"
#include "engine/drafting/drafter_facts.h"
#include "engine/drafting/medusa_drafter.h"
#include "model/families.h"
#include "model/registry.h"
#include "speculate/network/eagle.h"
#include "speculate/network/mtp.h"
#include "speculate/network/token_frequency.h"

namespace quire {
namespace {

// The drafter's tokens must be the target's.
void check_same_vocabulary(const Model& draft, const Model& target, const std::string& name) {
  const int tokens = target.config.vocab;
  if (!draft.text.tokenizer || !target.text.tokenizer) return;
  for (TokenId id = 0; id < tokens; ++id) {
    const std::string_view mine = draft.text.tokenizer->token_bytes(id);
    const std::string_view theirs = target.text.tokenizer->token_bytes(id);
    if (mine != theirs)
      throw invalid("--draft-model {}: token {} is {}, but {} in the model; use one with the same vocabulary",
                    quote(name), id, quote(mine), quote(theirs));
  }
}

std::unique_ptr<DraftModel> load_small_model(const EngineOptions& o, const Model& target, Backend& backend, Team& team,
                                             size_t memory, DraftOutput output) {
  const Checkpoint checkpoint = Checkpoint::open(resolve_model(o.draft_model));
  Model m = read_model(checkpoint);
  check_small_model(o, m.config, target.config);
  check_same_vocabulary(m, target, o.draft_model);
  m.weights = load_weights(checkpoint, m.config, backend, team, {.memory = memory});
  return std::make_unique<SmallModelDrafter>(std::move(m), "draft " + o.draft_model, std::move(output));
}

}  // namespace

std::unique_ptr<DraftModel> DraftModel::load(DrafterKind kind, const EngineOptions& o, const Checkpoint& checkpoint,
                                             const Model& target, Backend& backend, Team& team, size_t memory) {
  const ModelConfig& config = target.config;
  DraftOutput output;
  if (!o.draft_vocabulary.empty())
    output = DraftOutput(read_token_frequency(o.draft_vocabulary, config.vocab, drafted_vocabulary(o, config)));
  switch (kind) {
    case DrafterKind::kEarlyExit:
      return std::make_unique<FirstLayersDrafter>(first_layers(o, config), std::move(output));
    case DrafterKind::kEagle:
      return std::make_unique<FeatureDrafter>(kind, read_eagle(o.eagle_head, config, backend, team), std::move(output));
    case DrafterKind::kMtp:
      return std::make_unique<FeatureDrafter>(kind, read_mtp(checkpoint, config, backend, team, memory),
                                              std::move(output));
    case DrafterKind::kMedusa:
      return std::make_unique<MedusaDrafter>(read_medusa(o.medusa_heads, config, backend, team), std::move(output));
    default:
      return load_small_model(o, target, backend, team, memory, std::move(output));
  }
}

DraftModel::Reads DraftModel::reads_of(DrafterKind kind) {
  switch (kind) {
    case DrafterKind::kEagle:
    case DrafterKind::kMtp:
      return Reads::kAllRows;
    case DrafterKind::kMedusa:
      return Reads::kSampledRows;
    default:
      return Reads::kNothing;
  }
}

void DraftModel::keep_features(Sequence& s, uint64_t step, int row, int position, int count) {
  ModelDrafting& d = s.drafting->model;
  d.step = step;
  d.feature = row;
  d.features_at = position;
  d.features = count;
}

DraftOutput::DraftOutput(TokenIds frequent) : ids_(std::move(frequent)) { std::ranges::sort(ids_); }

const Linear& DraftOutput::take(const Weights& weights, Backend& backend) {
  if (ids_.empty()) return weights.output;
  if (!subset_) subset_ = take_output_rows(weights, ids_, backend);
  assert(std::ranges::equal(subset_->ids, ids_));
  return subset_->matrix;
}

}  // namespace quire
