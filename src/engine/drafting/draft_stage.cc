#include "engine/drafting/draft_stage.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/error.h"
#include "base/quote.h"

namespace quire {
namespace {

// By the length of the match. SmolLM2 on MT-bench: the first token is right after 20 % of the matches of one token, 53 %
// of two, 59 % of three, 96 % of twelve or more.
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

}  // namespace

bool DraftStage::check(const EngineOptions& o) {
  if (o.speculative == "off") return false;
  if (o.speculative != "auto" && std::ranges::find(kDrafters, o.speculative) == kDrafters.end())
    throw invalid("--speculative {} is not supported; use off, auto, {}", quote(o.speculative),
                  fmt::join(kDrafters, ", "));
  if (o.num_speculative_tokens < 1 || o.num_speculative_tokens > kMostSpeculativeTokens)
    throw invalid("--num-speculative-tokens must be between 1 and {}, not {}", kMostSpeculativeTokens,
                  o.num_speculative_tokens);
  if (!o.kv_cache) throw invalid("--speculative {} needs the KV cache; leave out --no-kv-cache", o.speculative);
  return true;
}

DraftStage::DraftStage(const EngineOptions& options, DraftModel* model, TextDrafters* texts)
    : always_(options.speculate_always),
      depth_(options.num_speculative_tokens),
      model_(model),
      texts_(texts),
      controller_(traits(model, texts)) {}

// ---- before a step ----

// Adds the candidates of sequence number `index` among those that decode.
void DraftStage::propose(Sequence& s, int index, int depth) {
  SequenceDrafting& d = *s.drafting;
  const auto kinds = texts_->kinds();
  for (size_t i = 0; i < kinds.size(); ++i) {
    SequenceDrafting::Proposal& last = d.proposals[i];
    const auto drafter = static_cast<int>(i);
    // A proposal that was not verified shows, too, whether drafting would pay.
    if (last.first != kNoToken)
      controller_.learn(drafter, last.confidence, 1, s.tokens[last.at] == last.first, d.acceptance);
    last.first = kNoToken;
    texts_->propose(kinds[i], s, depth, drafts_);
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
  if (!model_) return;
  proposed_.push_back({&s, 0, 0});
  candidates_.push_back(
      {.sequence = index, .drafter = static_cast<int>(kinds.size()), .depth = depth, .request = &d.acceptance});
}

DrafterStats& DraftStage::stats_of(int drafter) {
  const auto kinds = texts_->kinds();
  const auto i = static_cast<size_t>(drafter);
  const std::string_view name = i < kinds.size() ? drafter_name(kinds[i]) : model_->name();
  return stats_[static_cast<size_t>(std::ranges::find(kDrafters, name) - kDrafters.begin())];
}

void DraftStage::choose(Sequences& running, const StepCosts& costs, int most_rows, int most_tokens) {
  if (!on()) return;
  ++step_;
  model_seconds_ = 0;
  proposed_.clear();
  tokens_.clear();
  candidates_.clear();
  texts_->begin_step(running);
  const auto start = Clock::now();
  bool any = false;
  int decoding = 0;
  for (Sequence& s : running) {
    s.drafts.clear();
    if (!s.request->speculate) {
      decoding += s.decodes;
      continue;
    }
    if (!s.drafting && (s.decodes || model_)) {
      s.drafting = std::make_unique<SequenceDrafting>();
      s.drafting->proposals.resize(texts_->kinds().size());
      s.drafting->computed = s.request->begun ? s.request->cached_tokens : 0;
    }
    if (!s.decodes || s.cached.load.active) continue;
    any = true;
    texts_->follow(s);
    const int left = std::min(most_tokens - static_cast<int>(s.tokens.size()),
                              s.request->max_new_tokens - s.generated() - 1);  // the step gives one more
    if (const int depth = std::min({depth_, left, most_rows}); depth > 0) propose(s, decoding, depth);
    ++decoding;
  }
  choice_ = {};
  if (!candidates_.empty()) choose_depths(costs, decoding, most_rows);
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
  if (any) stats_of(0).seconds += seconds(Clock::now() - start);
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

void DraftStage::draft(std::span<Sequence* const> sequences, std::span<Chunk> chunks) {
  if (!model_) return;
  tasks_.clear();
  DraftWork work;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Sequence& s = *sequences[i];
    if (!s.drafting) continue;
    const bool computes = chunks[i].drafts > 0 && s.drafts[0] == kNoToken;
    if (computes) s.drafts.resize(static_cast<size_t>(chunks[i].drafts));
    tasks_.push_back({&s, computes ? chunks[i].drafts : 0});
    if (!computes) continue;
    work.rows += chunks[i].drafts;
    work.passes = std::max(work.passes, model_->sequential() ? chunks[i].drafts : 1);
  }
  const auto start = Clock::now();
  model_->draft(tasks_, step_ - 1);
  model_seconds_ = seconds(Clock::now() - start);
  const auto drafter = static_cast<int>(texts_->kinds().size());
  stats_of(drafter).seconds += model_seconds_;
  if (work.rows > 0) controller_.learn_cost(drafter, work, model_seconds_);
  for (size_t i = 0; i < chunks.size(); ++i) {
    Sequence& s = *sequences[i];
    if (chunks[i].drafts == 0) continue;
    if (!s.drafts.empty() && s.drafts[0] == kNoToken) s.drafts.clear();
    chunks[i].drafts = std::min(chunks[i].drafts, static_cast<int>(s.drafts.size()));
  }
}

// ---- after it ----

void DraftStage::take_features(Sequence& s, int row, int position, int count) {
  if (s.drafting) DraftModel::keep_features(s, step_, row, position, count);
}

void DraftStage::learn(Sequence& s, int verified, int accepted, std::span<const TokenId> predicted) {
  SequenceDrafting& d = *s.drafting;
  controller_.learn(d.drafter, d.confidence, verified, accepted, d.acceptance);
  stats_of(d.drafter).count(verified, accepted);
  if (std::cmp_less(d.drafter, d.proposals.size())) d.proposals[static_cast<size_t>(d.drafter)].first = kNoToken;
  d.computed = std::min(d.computed, s.computed);
  texts_->observe(s, accepted, predicted);
}

void DraftStage::finish(double seconds, int tokens) {
  if (!candidates_.empty() && !always_) controller_.finish(choice_, seconds, tokens);
}

}  // namespace quire
