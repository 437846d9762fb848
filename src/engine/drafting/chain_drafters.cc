#include "engine/drafting/chain_drafters.h"

#include <algorithm>
#include <utility>

namespace quire {

void ChainDrafter::start(DraftNetwork& passes, const CacheLayout&, const DecoderLimits& limits) {
  most_rows_ = limits.max_rows;
  chains_.emplace(passes, most_rows_, reads() != Reads::kNothing);
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
  chains_->draft(requests_, output_.ids(), picker, drafted_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].depth > 0) sequences_[i]->drafts.assign(drafted_[i].begin(), drafted_[i].end());
  }
}

// ---- a small model ----

SmallModelDrafter::SmallModelDrafter(Model model, std::string identity, DraftOutput output)
    : ChainDrafter(std::move(output)), small_(std::move(model)), identity_(std::move(identity)) {}

std::unique_ptr<DraftNetwork> SmallModelDrafter::make_network(const DraftTarget& target) {
  const auto first_layer = static_cast<int>(target.config.layers.size());
  Decoder& decoder = decoders_.emplace_back(small_.config, small_.weights, target.cache, target.backend,
                                            target.activations, target.limits, first_layer);
  return std::make_unique<TokenNetwork>(decoder, 0, output_.take(small_.weights, target.backend));
}

void SmallModelDrafter::start(DraftNetwork& passes, const CacheLayout& layout, const DecoderLimits& limits) {
  ChainDrafter::start(passes, layout, limits);
  for (size_t layer = layout.layers().size() - small_.config.layers.size(); layer < layout.layers().size(); ++layer) {
    const int group = layout.group_of(static_cast<int>(layer));
    const int window = group >= 0 ? layout.groups()[static_cast<size_t>(group)].window : 0;
    if (window > 0) windows_.push_back({group, window});
  }
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
                      .rope_variant = rope_variant(small_.config.ropes, s.request->prompt_tokens)});
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

std::unique_ptr<DraftNetwork> FirstLayersDrafter::make_network(const DraftTarget& target) {
  return std::make_unique<TokenNetwork>(target.decoder, layers_, output_.take(target.weights, target.backend));
}

ChainRequest FirstLayersDrafter::request(Sequence& s, int depth, uint64_t, int) {
  if (depth == 0) return {};
  return {.tables = s.pages.units(),
          .position = s.computed,
          .tokens = std::span<const TokenId>(s.tokens).subspan(static_cast<size_t>(s.computed)),
          .depth = depth,
          .rope_variant = s.request->rope_variant,
          .adapter = adapter_number(*s.request)};
}

// ---- a layer that predicts hidden states ----

FeatureDrafter::FeatureDrafter(DrafterKind kind, FeatureLayer layer, DraftOutput output)
    : ChainDrafter(std::move(output)),
      kind_(kind),
      identity_(std::string(name(kind)) + " " + layer.identity),
      layer_(std::make_shared<FeatureLayer>(std::move(layer))) {}

std::unique_ptr<DraftNetwork> FeatureDrafter::make_network(const DraftTarget& target) {
  FeaturePredictor& predictor =
      predictors_.emplace_back(layer_, target.config, target.weights, target.cache, target.backend, target.activations,
                               target.limits, static_cast<int>(target.config.layers.size()));
  return std::make_unique<FeatureNetwork>(predictor, target.features(),
                                          output_.take(predictor.output_weights(), target.backend));
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
