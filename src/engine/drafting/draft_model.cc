#include "engine/drafting/draft_model.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "model/families.h"
#include "model/registry.h"
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

}  // namespace

std::unique_ptr<DraftModel> DraftModel::load(const EngineOptions& o, const Model& target, Runtime& runtime) {
  const bool automatic = o.speculative == "auto";
  const auto named = [&](const char* kind, const std::string& path, const char* flag) {
    if (o.speculative == kind && path.empty()) throw invalid("--speculative {} needs {}", kind, flag);
    return o.speculative == kind || (automatic && !path.empty());
  };
  std::unique_ptr<DraftModel> d;
  if (named("draft", o.draft_model, "--draft-model")) {
    const Checkpoint checkpoint = Checkpoint::open(resolve_model(o.draft_model));
    d.reset(new DraftModel(Kind::kModel));
    Model& m = d->model_;
    m.config = read_model_config(checkpoint);
    m.text = load_model_text(checkpoint);
    check_same_vocabulary(m, target, o.draft_model);
    if (!m.config.has_logits || cache_layout(m.config, KvType::kBf16).state_bytes() > 0)
      throw unsupported("--draft-model {}: its layers must all be attention, and it must generate text",
                        quote(o.draft_model));
    m.weights = load_weights(checkpoint, m.config, runtime.team, {.memory = runtime.memory});
    d->identity_ = "draft " + o.draft_model;
  } else if (named("eagle", o.eagle_head, "--eagle-head")) {
    d.reset(new DraftModel(Kind::kEagle));
    d->eagle_head_ = read_eagle(o.eagle_head, target.config, runtime.team);
    d->identity_ = "eagle " + d->eagle_head_->identity;
  } else if (named("medusa", o.medusa_heads, "--medusa-heads")) {
    d.reset(new DraftModel(Kind::kMedusa));
    d->medusa_heads_ = read_medusa(o.medusa_heads, target.config, runtime.team);
  } else if (o.speculative == "early-exit") {
    d.reset(new DraftModel(Kind::kFirstLayers));
    const int layers = static_cast<int>(target.config.layers.size());
    d->first_layers_ = o.early_exit_layers > 0 ? o.early_exit_layers : layers * 4 / 5;
    if (d->first_layers_ >= layers || !can_exit_after(target.config, d->first_layers_))
      throw invalid("--early-exit-layers {} is not possible; the model has {} layers{}", d->first_layers_, layers,
                    d->first_layers_ < layers ? ", and the next one needs more than this one's result" : "");
    if (cache_layout(target.config, KvType::kBf16).state_bytes() > 0)
      throw unsupported("--speculative early-exit does not support models with recurrent layers; use ngram");
  }
  if (d && !o.draft_vocabulary.empty())
    d->frequent_ =
        read_token_frequency(o.draft_vocabulary, target.config.vocab, std::min(kFrequentTokens, target.config.vocab));
  return d;
}

const ModelConfig* DraftModel::layers() const {
  if (kind_ == Kind::kModel) return &model_.config;
  return eagle_head_ ? &eagle_head_->config : nullptr;
}

std::string_view DraftModel::name() const {
  switch (kind_) {
    case Kind::kModel:
      return "draft";
    case Kind::kFirstLayers:
      return "early-exit";
    case Kind::kEagle:
      return "eagle";
    case Kind::kMedusa:
      return "medusa";
  }
  return "draft";
}

DraftModel::Reads DraftModel::reads() const {
  if (kind_ == Kind::kEagle) return Reads::kAllRows;
  return kind_ == Kind::kMedusa ? Reads::kSampledRows : Reads::kNothing;
}

size_t DraftModel::activation_bytes(const ModelConfig& target, const DecoderLimits& limits, int threads) const {
  switch (kind_) {
    case Kind::kModel:
      return Decoder::memory_bytes(model_.config, limits, threads);
    case Kind::kFirstLayers:
      return 0;
    case Kind::kEagle:
      return Eagle::memory_bytes(eagle_head_->config, limits, threads);
    case Kind::kMedusa:
      return Medusa::memory_bytes(static_cast<int>(medusa_heads_->heads.size()), target, limits.max_logits);
  }
  return 0;
}

void DraftModel::start(const ModelConfig& target, const Weights& weights, CacheMemory& cache, const Compute& compute,
                       Decoder& decoder, const DecoderLimits& limits) {
  target_ = &decoder;
  target_weights_ = &weights;
  most_rows_ = limits.max_rows;
  const CacheLayout& layout = cache.layout();
  const int first_layer = static_cast<int>(target.layers.size());
  for (size_t layer = target.layers.size(); layer < layout.layers().size(); ++layer) {
    const int group = layout.group_of(static_cast<int>(layer));
    const int window = group >= 0 ? layout.groups()[static_cast<size_t>(group)].window : 0;
    if (window > 0) windows_.push_back({group, window});
  }
  int hidden = target.hidden;
  switch (kind_) {
    case Kind::kModel:
      decoder_ = std::make_unique<Decoder>(model_.config, model_.weights, cache, compute, limits, first_layer);
      chain_ = std::make_unique<TokenChainModel>(*decoder_);
      hidden = model_.config.hidden;
      break;
    case Kind::kFirstLayers:
      chain_ = std::make_unique<TokenChainModel>(decoder, first_layers_);
      break;
    case Kind::kEagle:
      chain_ = std::make_unique<Eagle>(std::move(*eagle_head_), target, weights, cache, compute, limits, first_layer);
      break;
    case Kind::kMedusa:
      medusa_.emplace(std::move(*medusa_heads_), target, compute, limits.max_logits);
      break;
  }
  if (!frequent_.empty()) {
    const Weights& of = kind_ == Kind::kModel ? model_.weights : weights;
    subset_ = take_output_rows(of, std::move(frequent_), compute.team);
  }
  if (chain_) chains_.emplace(*chain_, compute, limits, hidden);
}

const Linear& DraftModel::output() const {
  if (subset_) return subset_->matrix;
  return kind_ == Kind::kModel ? model_.weights.output : target_weights_->output;
}

void DraftModel::keep_features(Sequence& s, uint64_t step, int row, int position, int count) {
  SequenceDrafting& d = *s.drafting;
  d.step = step;
  d.feature = row;
  d.features_at = position;
  d.features = count;
}

// The first token that is not computed and sees no token whose memory a window has given up. If the draft model has not
// computed the tokens before it, its drafts suffer.
int DraftModel::first_to_compute(const Sequence& s) const {
  int first = s.drafting->computed;
  for (const Window& w : windows_) {
    const int held = s.pages.first_held(w.group) * kPageTokens;
    if (held > 0) first = std::max(first, held + w.tokens - 1);
  }
  return first;
}

// Computes all but the last tokens, if they are more than one pass takes.
void DraftModel::catch_up(Sequence& s) {
  SequenceDrafting& d = *s.drafting;
  const std::span<const TokenId> tokens(s.tokens);
  d.computed = first_to_compute(s);
  while (static_cast<int>(tokens.size()) - d.computed > most_rows_ / 2) {
    const int rows = std::min(static_cast<int>(tokens.size()) - 1 - d.computed, most_rows_);
    const ChainRequest request{.tables = s.pages.units(),
                               .position = d.computed,
                               .tokens = tokens.subspan(static_cast<size_t>(d.computed), static_cast<size_t>(rows)),
                               .rope_variant = rope_variant(model_.config.ropes, s.request->prompt_tokens)};
    drafted_.resize(std::max<size_t>(drafted_.size(), 1));
    chains_->draft({&request, 1}, {}, output(), output_ids(), drafted_);
    d.computed += rows;
  }
}

// A request without tokens: the sequence takes no part.
ChainRequest DraftModel::request(Sequence& s, int depth, uint64_t step) {
  SequenceDrafting& d = *s.drafting;
  const std::span<const TokenId> tokens(s.tokens);
  ChainRequest r{.tables = s.pages.units(), .position = 0, .tokens = {}, .depth = depth};
  const auto last = static_cast<int>(tokens.size()) - 1;
  switch (kind_) {
    case Kind::kModel:
      if (depth == 0) break;
      r.position = d.computed;
      r.rope_variant = rope_variant(model_.config.ropes, s.request->prompt_tokens);
      r.tokens = tokens.subspan(static_cast<size_t>(r.position));
      d.computed = last + depth;
      break;
    case Kind::kFirstLayers:
      if (depth == 0) break;
      r.position = s.computed;
      r.rope_variant = s.request->rope_variant;
      r.tokens = tokens.subspan(static_cast<size_t>(s.computed));
      break;
    case Kind::kEagle: {
      if (d.step != step || d.features == 0) break;
      // The row of the last token needs the one after it.
      const int rows = std::min(d.features, last - d.features_at);
      if (d.features_at + rows < last) r.depth = 0;
      r.position = d.features_at;
      r.feature = d.feature;
      r.rope_variant = s.request->rope_variant;
      r.tokens = tokens.subspan(static_cast<size_t>(r.position) + 1, static_cast<size_t>(std::max(0, rows)));
      break;
    }
    case Kind::kMedusa:
      break;
  }
  return r;
}

void DraftModel::draft(std::span<const DraftTask> tasks, uint64_t step) {
  if (medusa_) return draft_by_heads(tasks, step);
  requests_.clear();
  sequences_.clear();
  int rows = 0;
  for (const DraftTask& task : tasks) {
    Sequence& s = *task.sequence;
    if (task.depth > 0) s.drafts.clear();
    if (kind_ == Kind::kModel && task.depth > 0) catch_up(s);
    const int known = static_cast<int>(s.tokens.size()) - s.drafting->computed;
    if (kind_ == Kind::kModel && rows + known > most_rows_) continue;  // it drafts in a later step
    const ChainRequest r = request(s, task.depth, step);
    if (r.tokens.empty()) continue;
    rows += static_cast<int>(r.tokens.size());
    requests_.push_back(r);
    sequences_.push_back(&s);
  }
  if (requests_.empty()) return;
  drafted_.resize(std::max(drafted_.size(), requests_.size()));
  const Rows features = reads() == Reads::kNothing ? Rows{} : target_->hidden();
  chains_->draft(requests_, features, output(), output_ids(), drafted_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].depth == 0) continue;
    for (const DraftedToken& token : drafted_[i]) sequences_[i]->drafts.push_back(token.token);
  }
}

void DraftModel::draft_by_heads(std::span<const DraftTask> tasks, uint64_t step) {
  const Rows hidden = target_->hidden();
  sequences_.clear();
  features_.clear();
  int depth = 0;
  for (const DraftTask& task : tasks) {
    if (task.depth == 0) continue;
    Sequence& s = *task.sequence;
    const SequenceDrafting& d = *s.drafting;
    s.drafts.clear();
    if (d.step != step || d.features_at + d.features + 1 != static_cast<int>(s.tokens.size())) continue;
    const float* feature = hidden.row(d.feature + d.features - 1);
    features_.insert(features_.end(), feature, feature + hidden.cols);
    s.drafts.resize(static_cast<size_t>(std::min(task.depth, medusa_->heads())));
    depth = std::max(depth, static_cast<int>(s.drafts.size()));
    sequences_.push_back(&s);
  }
  if (sequences_.empty()) return;
  best_.resize(sequences_.size() * static_cast<size_t>(depth));
  const Rows features{features_.data(), hidden.cols, static_cast<size_t>(hidden.cols)};
  medusa_->draft(features, static_cast<int>(sequences_.size()), depth, 1, output(), output_ids(), best_);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    TokenIds& drafts = sequences_[i]->drafts;
    for (size_t k = 0; k < drafts.size(); ++k) drafts[k] = best_[i * static_cast<size_t>(depth) + k].token;
  }
}

}  // namespace quire
