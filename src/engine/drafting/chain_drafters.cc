#include "engine/drafting/chain_drafters.h"

#include <algorithm>
#include <utility>

namespace quire {

void ChainDrafter::start_chains(const DraftTarget& target, std::unique_ptr<ChainModel> model, const Weights& weights,
                                int hidden) {
  target_ = &target.decoder;
  most_rows_ = target.limits.max_rows;
  output_.start(weights, target.compute.team);
  model_ = std::move(model);
  chains_.emplace(*model_, target.limits, hidden);
}

void ChainDrafter::draft(std::span<const DraftTask> tasks, uint64_t step, DraftPicker& picker) {
  requests_.clear();
  sequences_.clear();
  int rows = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    Sequence& s = *tasks[i].sequence;
    if (tasks[i].depth > 0) s.drafts.clear();
    ChainRequest r = request(s, tasks[i].depth, step, most_rows_ - rows);
    if (r.tokens.empty()) continue;
    r.task = i;
    rows += static_cast<int>(r.tokens.size());
    requests_.push_back(r);
    sequences_.push_back(&s);
  }
  if (requests_.empty()) return;
  drafted_.resize(std::max(drafted_.size(), requests_.size()));
  const Rows features = reads() == Reads::kNothing ? Rows{} : target_->hidden();
  chains_->draft(requests_, features, output_.matrix(), output_.ids(), picker, drafted_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].depth > 0) sequences_[i]->drafts.assign(drafted_[i].begin(), drafted_[i].end());
  }
}

// ---- a small model ----

SmallModelDrafter::SmallModelDrafter(Model model, std::string identity, DraftOutput output)
    : ChainDrafter(std::move(output)), small_(std::move(model)), identity_(std::move(identity)) {}

void SmallModelDrafter::start(const DraftTarget& target) {
  const CacheLayout& layout = target.cache.layout();
  const size_t first_layer = target.config.layers.size();
  for (size_t layer = first_layer; layer < layout.layers().size(); ++layer) {
    const int group = layout.group_of(static_cast<int>(layer));
    const int window = group >= 0 ? layout.groups()[static_cast<size_t>(group)].window : 0;
    if (window > 0) windows_.push_back({group, window});
  }
  decoder_ = std::make_unique<Decoder>(small_.config, small_.weights, target.cache, target.compute, target.limits,
                                       static_cast<int>(first_layer));
  start_chains(target, std::make_unique<TokenChainModel>(*decoder_), small_.weights, small_.config.hidden);
}

// The first token that is not computed and sees no token whose memory a window has given up. If the draft model has not
// computed the tokens before it, its drafts suffer.
int SmallModelDrafter::first_to_compute(const Sequence& s) const {
  int first = s.drafting->model.computed;
  for (const Window& w : windows_) {
    const int held = s.pages.first_held(w.group) * kPageTokens;
    if (held > 0) first = std::max(first, held + w.tokens - 1);
  }
  return first;
}

// Computes all but the last tokens, if they are more than one pass takes.
void SmallModelDrafter::catch_up(Sequence& s) {
  int& computed = s.drafting->model.computed;
  const std::span<const TokenId> tokens(s.tokens);
  computed = first_to_compute(s);
  while (static_cast<int>(tokens.size()) - computed > most_rows_ / 2) {
    const int rows = std::min(static_cast<int>(tokens.size()) - 1 - computed, most_rows_);
    chains_->compute({.tables = s.pages.units(),
                      .position = computed,
                      .tokens = tokens.subspan(static_cast<size_t>(computed), static_cast<size_t>(rows)),
                      .rope_variant = rope_variant(small_.config.ropes, s.request->prompt_tokens)},
                     output_.matrix());
    computed += rows;
  }
}

ChainRequest SmallModelDrafter::request(Sequence& s, int depth, uint64_t, int most_rows) {
  if (depth == 0) return {};
  catch_up(s);
  int& computed = s.drafting->model.computed;
  const auto count = static_cast<int>(s.tokens.size());
  if (count - computed > most_rows) return {};  // it drafts in a later step
  const int first = std::exchange(computed, count - 1 + depth);
  return {.tables = s.pages.units(),
          .position = first,
          .tokens = std::span<const TokenId>(s.tokens).subspan(static_cast<size_t>(first)),
          .depth = depth,
          .rope_variant = rope_variant(small_.config.ropes, s.request->prompt_tokens)};
}

// ---- the target's first layers ----

void FirstLayersDrafter::start(const DraftTarget& target) {
  start_chains(target, std::make_unique<TokenChainModel>(target.decoder, layers_), target.weights,
               target.config.hidden);
}

ChainRequest FirstLayersDrafter::request(Sequence& s, int depth, uint64_t, int) {
  if (depth == 0) return {};
  return {.tables = s.pages.units(),
          .position = s.computed,
          .tokens = std::span<const TokenId>(s.tokens).subspan(static_cast<size_t>(s.computed)),
          .depth = depth,
          .rope_variant = s.request->rope_variant};
}

// ---- a layer that predicts hidden states ----

FeatureDrafter::FeatureDrafter(DrafterKind kind, FeatureLayer layer, DraftOutput output)
    : ChainDrafter(std::move(output)),
      kind_(kind),
      identity_(std::string(name(kind)) + " " + layer.identity),
      layer_(std::move(layer)) {}

void FeatureDrafter::start(const DraftTarget& target) {
  auto predictor =
      std::make_unique<FeaturePredictor>(std::move(*layer_), target.config, target.weights, target.cache,
                                         target.compute, target.limits, static_cast<int>(target.config.layers.size()));
  layer_.reset();
  const Weights& weights = predictor->output_weights();
  start_chains(target, std::move(predictor), weights, target.config.hidden);
}

ChainRequest FeatureDrafter::request(Sequence& s, int depth, uint64_t step, int) {
  const ModelDrafting& d = s.drafting->model;
  if (d.step != step || d.features == 0) return {};
  // The row of the last token needs the one after it.
  const auto last = static_cast<int>(s.tokens.size()) - 1;
  const int rows = std::max(0, std::min(d.features, last - d.features_at));
  return {.tables = s.pages.units(),
          .position = d.features_at,
          .tokens = std::span<const TokenId>(s.tokens).subspan(static_cast<size_t>(d.features_at) + 1,
                                                               static_cast<size_t>(rows)),
          .feature = d.feature,
          .depth = d.features_at + rows < last ? 0 : depth,
          .rope_variant = s.request->rope_variant};
}

}  // namespace quire
