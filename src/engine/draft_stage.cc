#include "engine/draft_stage.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/quote.h"

namespace quire {
namespace {

constexpr size_t kNgramBytes = 84;  // of a token: SuffixAutomaton

// By the length of the match. SmolLM2 on MT-bench: the first token is right after 20 % of the matches of one token, 53 %
// of two, 59 % of three, 96 % of twelve or more.
int confidence_of(int match) {
  constexpr std::array kMatches{2, 3, 12};
  return static_cast<int>(std::ranges::upper_bound(kMatches, match) - kMatches.begin());
}

}  // namespace

bool DraftStage::check(const EngineOptions& o) {
  if (o.speculative == "off") return false;
  if (std::ranges::find(kDrafters, o.speculative) == kDrafters.end())
    throw invalid("--speculative {} is not supported; use off, {}", quote(o.speculative), fmt::join(kDrafters, ", "));
  if (o.num_speculative_tokens < 1 || o.num_speculative_tokens > kMostSpeculativeTokens)
    throw invalid("--num-speculative-tokens must be between 1 and {}, not {}", kMostSpeculativeTokens,
                  o.num_speculative_tokens);
  if (!o.kv_cache) throw invalid("--speculative {} needs the KV cache; leave out --no-kv-cache", o.speculative);
  return true;
}

DraftStage::DraftStage(const EngineOptions& options, size_t most_tokens)
    : on_(check(options)),
      always_(options.speculate_always),
      depth_(options.num_speculative_tokens),
      most_tokens_(most_tokens),
      controller_(std::array{DrafterTraits{}}) {}

size_t DraftStage::memory_bytes(size_t tokens) { return tokens * kNgramBytes; }

// Shows the drafter the sequence's new tokens. false: it has no memory for them.
bool DraftStage::follow(Sequence& s) {
  if (!s.drafting) {
    if (tokens_ + s.tokens.capacity() > most_tokens_) return false;
    tokens_ += s.tokens.capacity();
    s.drafting = std::make_unique<SequenceDrafting>();
    s.drafting->ngram.reserve(s.tokens.capacity());
  }
  SequenceDrafting& d = *s.drafting;
  d.ngram.append(std::span<const TokenId>(s.tokens).subspan(d.seen));
  d.seen = s.tokens.size();
  return true;
}

std::span<const TokenId> DraftStage::propose(Sequence& s, int depth) {
  if (!follow(s)) return {};
  SequenceDrafting& d = *s.drafting;
  // A proposal that was not verified shows, too, whether drafting would pay.
  if (d.first != kNoToken) controller_.learn(0, d.confidence, 1, s.tokens[d.at] == d.first, d.acceptance);
  d.first = kNoToken;
  d.ngram.draft(depth, 1, drafts_);
  if (drafts_.empty()) return {};
  d.confidence = confidence_of(drafts_[0].match);
  d.first = drafts_[0].tokens[0];
  d.at = s.tokens.size();
  return drafts_[0].tokens;
}

void DraftStage::draft(Sequences& running, const StepCosts& costs, int most_rows, int most_tokens) {
  if (!on_) return;
  sequences_.clear();
  candidates_.clear();
  int decoding = 0;
  tokens_ = 0;
  for (const Sequence& s : running) tokens_ += s.drafting ? s.tokens.capacity() : 0;
  const auto start = Clock::now();
  bool drafts = false;
  for (Sequence& s : running) {
    s.drafts.clear();
    if (!s.decodes || s.cached.load.active) continue;
    drafts |= s.request->speculate;
    const int left = std::min(most_tokens - static_cast<int>(s.tokens.size()),
                              s.request->max_new_tokens - s.generated() - 1);  // the step gives one more
    const int depth = s.request->speculate ? std::min({depth_, left, most_rows}) : 0;
    if (depth > 0) {
      const auto tokens = propose(s, depth);
      s.drafts.assign(tokens.begin(), tokens.end());
    }
    if (!s.drafts.empty()) {
      sequences_.push_back(&s);
      candidates_.push_back({.sequence = decoding,
                             .drafter = 0,
                             .confidence = s.drafting->confidence,
                             .depth = static_cast<int>(s.drafts.size()),
                             .drafted = true,
                             .request = &s.drafting->acceptance});
    }
    ++decoding;
  }
  if (!candidates_.empty() && !always_) choose(costs, decoding, most_rows);
  if (drafts) stats_.seconds += seconds(Clock::now() - start);
}

void DraftStage::choose(const StepCosts& costs, int decoding, int most_rows) {
  seconds_.clear();
  const int most = std::min(most_rows, depth_ * static_cast<int>(candidates_.size()));
  for (int rows = 0; rows <= most; ++rows) seconds_.push_back(std::max(costs.seconds_at(decoding + rows), 1e-9));
  controller_.choose({decoding, candidates_, seconds_}, choice_);
  for (size_t i = 0; i < sequences_.size(); ++i) sequences_[i]->drafts.resize(static_cast<size_t>(choice_.depths[i]));
}

void DraftStage::learn(Sequence& s, int verified, int accepted) {
  SequenceDrafting& d = *s.drafting;
  controller_.learn(0, d.confidence, verified, accepted, d.acceptance);
  stats_.count(verified, accepted);
  d.first = kNoToken;
}

void DraftStage::finish(double seconds, int tokens) {
  if (!candidates_.empty() && !always_) controller_.finish(choice_, seconds, tokens);
}

}  // namespace quire
