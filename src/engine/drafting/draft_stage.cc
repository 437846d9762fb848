#include "engine/drafting/draft_stage.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <utility>

namespace quire {
namespace {

// By the length of the match. SmolLM2 on MT-bench: the first token is right after 20 % of the matches of one token,
// 53 % of two, 59 % of three, 96 % of twelve or more.
int confidence_of(int match) {
  constexpr std::array kMatches{2, 3, 12};
  return static_cast<int>(std::ranges::upper_bound(kMatches, match) - kMatches.begin());
}

// A first guess of a pass, until one was timed.
constexpr double kPassSeconds = 1e-3;

std::vector<DrafterTraits> traits(const DraftModel* model, const TextDrafters* texts) {
  std::vector<DrafterTraits> all(texts ? texts->kinds().size() : 0);
  if (model) all.push_back({.sequential = model->sequential(), .pass_seconds = kPassSeconds});
  return all;
}

int index_of(std::span<const DrafterKind> kinds, DrafterKind kind) {
  return static_cast<int>(std::ranges::find(kinds, kind) - kinds.begin());
}

// Whether drafts are drawn, and judged by the rejection rule.
bool judges_drafts(const EngineOptions& options, bool has_model) {
  return has_model && options.speculative_acceptance == DraftAcceptance::kRejection;
}

}  // namespace

DraftStage::DraftStage(const EngineOptions& options, DraftModel* model, TextDrafters* texts, Team& team, int vocab)
    : always_(options.speculate_always),
      depth_(options.num_speculative_tokens),
      model_(model),
      texts_(texts),
      controller_(traits(model, texts)),
      best_(team) {
  if (!on()) return;
  for (const DrafterKind kind : texts_->kinds()) stats_.emplace_back().name = name(kind);
  if (model_) stats_.emplace_back().name = name(model_->kind());
  if (judges_drafts(options, model_ != nullptr)) sampler_.emplace(team, vocab, kMostRows);
}

size_t DraftStage::memory_bytes(const EngineOptions& options, bool has_model, int vocab, int threads) {
  return judges_drafts(options, has_model) ? DraftSampler::memory_bytes(vocab, kMostRows, threads) : 0;
}

// ---- drafters that fail ----

bool DraftStage::may_draft(const Sequence& s, int drafter) const {
  return ((failed_ | s.drafting->failed) >> drafter & 1) == 0;
}

void DraftStage::count_error(int drafter, std::string_view what) {
  DrafterStats& stats = stats_of(drafter);
  if (++stats.errors == 1) {
    spdlog::warn("--speculative: drafter {} failed: {}; answers go on without its drafts", stats.name, what);
  }
  if (stats.errors != kMostErrors) return;
  failed_ |= 1u << drafter;
  spdlog::warn("--speculative: drafter {} failed {} times and is off until the engine restarts", stats.name,
               stats.errors);
}

// The drafter is not asked again for this sequence.
void DraftStage::fail(Sequence& s, int drafter, std::string_view what) {
  s.drafting->failed |= 1u << drafter;
  if (drafter < model_index()) TextDrafters::drop(texts_->kinds()[static_cast<size_t>(drafter)], s);
  count_error(drafter, what);
}

// ---- before a step ----

void DraftStage::begin(Sequence& s) {
  auto drafting = std::make_unique<SequenceDrafting>();
  drafting->proposals.resize(texts_->kinds().size());
  drafting->model.computed = s.request->begun ? s.request->cached_tokens : 0;
  s.drafting = std::move(drafting);
}

// Fills drafts_ by a drafter that looks only at tokens.
void DraftStage::propose_text(Sequence& s, int drafter, int depth) {
  drafts_.clear();
  if (!may_draft(s, drafter)) return;
  const auto start = Clock::now();
  try {
    texts_->propose(texts_->kinds()[static_cast<size_t>(drafter)], s, depth, drafts_);
  } catch (const std::exception& e) {
    drafts_.clear();
    fail(s, drafter, e.what());
  }
  stats_of(drafter).seconds += seconds(Clock::now() - start);
}

// Adds the candidates of sequence number `index` among those that decode.
void DraftStage::propose(Sequence& s, int index, int depth) {
  SequenceDrafting& d = *s.drafting;
  for (int drafter = 0; drafter < model_index(); ++drafter) {
    SequenceDrafting::Proposal& last = d.proposals[static_cast<size_t>(drafter)];
    // A proposal that was not verified shows, too, whether drafting would pay.
    if (last.first != kNoToken && last.at < s.tokens.size())
      controller_.learn(drafter, last.confidence, 1, s.tokens[last.at] == last.first, d.acceptance);
    last.first = kNoToken;
    propose_text(s, drafter, depth);
    if (drafts_.empty()) continue;
    const Drafts::Draft draft = drafts_[0];
    last = {confidence_of(draft.match), draft.tokens[0], s.tokens.size()};
    proposed_.push_back({&s, tokens_.size(), draft.tokens.size()});
    tokens_.insert(tokens_.end(), draft.tokens.begin(), draft.tokens.end());
    candidates_.push_back({.sequence = index,
                           .drafter = drafter,
                           .confidence = last.confidence,
                           .depth = static_cast<int>(draft.tokens.size()),
                           .drafted = true,
                           .request = &d.acceptance});
  }
  if (!model_ || !may_draft(s, model_index())) return;
  proposed_.push_back({&s, 0, 0});
  candidates_.push_back({.sequence = index, .drafter = model_index(), .depth = depth, .request = &d.acceptance});
}

void DraftStage::choose(Sequences& running, const StepCosts& costs, int most_rows, int most_tokens) {
  if (!on()) return;
  ++step_;
  model_seconds_ = 0;
  const auto forget = [&] {
    for (Sequence& s : running) {
      s.drafts.clear();
      s.draft_weights.clear();
    }
    proposed_.clear();
    tokens_.clear();
    candidates_.clear();
    choice_.depths.clear();
  };
  forget();
  try {
    choose_drafts(running, costs, std::min(most_rows, kMostRows), most_tokens);
  } catch (const std::bad_alloc&) {  // The stage has no memory: the step goes on without drafts.
    forget();
  }
}

void DraftStage::choose_drafts(Sequences& running, const StepCosts& costs, int most_rows, int most_tokens) {
  texts_->begin_step(running);
  int decoding = 0;
  for (Sequence& s : running) {
    if (!s.request->speculate) {
      decoding += s.decodes;
      continue;
    }
    if (!s.drafting && (s.decodes || model_)) begin(s);
    if (!s.decodes || s.cached.load.active) continue;
    const int left = std::min(most_tokens - static_cast<int>(s.tokens.size()),
                              s.request->max_new_tokens - s.generated() - 1);  // the step gives one more
    if (const int depth = std::min({depth_, left, most_rows}); depth > 0) propose(s, decoding, depth);
    ++decoding;
  }
  if (candidates_.empty()) return;
  choose_depths(costs, decoding, most_rows);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const auto depth = static_cast<size_t>(choice_.depths[i]);
    if (depth == 0) continue;
    Sequence& s = *proposed_[i].sequence;
    s.drafting->drafter = candidates_[i].drafter;
    s.drafting->confidence = candidates_[i].confidence;
    if (candidates_[i].drafted) {
      const auto* const tokens = tokens_.data() + proposed_[i].begin;
      s.drafts.assign(tokens, tokens + depth);
    } else {
      s.drafts.assign(depth, kNoToken);
    }
  }
}

void DraftStage::choose_depths(const StepCosts& costs, int decoding, int most_rows) {
  if (always_) {  // the last candidate of each sequence
    choice_.depths.assign(candidates_.size(), 0);
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (i + 1 == candidates_.size() || candidates_[i + 1].sequence != candidates_[i].sequence)
        choice_.depths[i] = candidates_[i].depth;
    }
    return;
  }
  seconds_.clear();
  const int most = std::min(most_rows, depth_ * decoding);
  for (int rows = 0; rows <= most; ++rows) seconds_.push_back(std::max(costs.seconds_at(decoding + rows), 1e-9));
  controller_.choose({decoding, candidates_, seconds_}, choice_);
}

// Sequences that were admitted since choose(): the model must see their first rows, too.
void DraftStage::begin_admitted(std::span<Sequence* const> sequences) {
  for (Sequence* s : sequences) {
    if (!s->drafting && s->request->speculate) begin(*s);
  }
}

// The chunk's drafts are those that the model is to compute.
bool DraftStage::drafts_by_model(const Sequence& s, const Chunk& chunk) const {
  return chunk.drafts > 0 && s.drafting->drafter == model_index();
}

void DraftStage::draft_by_model(std::span<Sequence* const> sequences, std::span<const Chunk> chunks) {
  DraftWork work;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Sequence& s = *sequences[i];
    if (!s.drafting || !may_draft(s, model_index())) continue;
    const int depth = drafts_by_model(s, chunks[i]) ? chunks[i].drafts : 0;
    tasks_.push_back({&s, depth});
    work.rows += depth;
    work.passes = std::max(work.passes, model_->sequential() ? depth : std::min(depth, 1));
  }
  if (tasks_.empty()) return;
  const auto start = Clock::now();
  if (sampler_) sampler_->begin(tasks_);
  model_->draft(tasks_, step_ - 1, sampler_ ? static_cast<DraftPicker&>(*sampler_) : best_);
  model_seconds_ = seconds(Clock::now() - start);
  stats_of(model_index()).seconds += model_seconds_;
  if (work.rows > 0) controller_.learn_cost(model_index(), work, model_seconds_);
}

void DraftStage::draft(std::span<Sequence* const> sequences, std::span<Chunk> chunks) {
  if (!model_) return;
  bool failed = false;
  tasks_.clear();
  try {
    begin_admitted(sequences);
    draft_by_model(sequences, chunks);
  } catch (const std::exception& e) {
    failed = true;
    for (const DraftTask& task : tasks_) task.sequence->drafting->failed |= 1u << model_index();
    count_error(model_index(), e.what());
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    Sequence& s = *sequences[i];
    if (chunks[i].drafts == 0 || !drafts_by_model(s, chunks[i])) continue;
    // What it has not drafted, because it could not yet, or failed.
    if (failed || (!s.drafts.empty() && s.drafts[0] == kNoToken)) s.drafts.clear();
    chunks[i].drafts = std::min(chunks[i].drafts, static_cast<int>(s.drafts.size()));
  }
}

// ---- after it ----

void DraftStage::take_features(Sequence& s, int row, int position, int count) {
  if (s.drafting) DraftModel::keep_features(s, step_, row, position, count);
}

void DraftStage::learn(Sequence& s, int verified, int accepted, std::span<const TokenId> predicted) {
  SequenceDrafting& d = *s.drafting;
  stats_of(d.drafter).count(verified, accepted);
  d.model.computed = std::min(d.model.computed, s.computed);
  if (d.drafter < model_index()) d.proposals[static_cast<size_t>(d.drafter)].first = kNoToken;
  try {
    controller_.learn(d.drafter, d.confidence, verified, accepted, d.acceptance);
  } catch (const std::bad_alloc&) {  // nothing is learned from this draft
  }
  try {
    TextDrafters::observe(s, accepted, predicted);
  } catch (const std::exception& e) {
    fail(s, index_of(texts_->kinds(), DrafterKind::kLookahead), e.what());
  }
}

void DraftStage::remember(const Sequence& s) {
  if (!on() || !s.request->speculate || !texts_->has(DrafterKind::kRecent)) return;
  const int drafter = index_of(texts_->kinds(), DrafterKind::kRecent);
  if ((failed_ >> drafter & 1) != 0) return;
  try {
    texts_->remember(s);
  } catch (const std::exception& e) {
    count_error(drafter, e.what());
  }
}

void DraftStage::finish(double seconds, int tokens) {
  if (!candidates_.empty() && !always_) controller_.finish(choice_, seconds, tokens);
}

}  // namespace quire
