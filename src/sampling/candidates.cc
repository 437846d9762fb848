#include "sampling/candidates.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

#include "sampling/mirostat.h"
#include "sampling/penalties.h"

namespace quire {

namespace {

// The tokens whose logits adjust_logits() may change, or that are the only ones allowed.
void find_adjusted(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch,
                   std::vector<TokenId>& tokens) {
  assert(row.vocab > 0);
  const bool penalized = row.penalized && has_penalties(params);
  scratch.reserve_counts(row.vocab);
  tokens.clear();
  // So that nothing throws while the scratch holds something.
  tokens.reserve(std::min(row.vocab, params.logit_bias.size() + params.allowed_token_ids.size() + row.banned.size() +
                                         row.banned_runs.size() +
                                         (penalized ? row.prompt.size() + row.generated.size() : 0)));
  const auto note = [&](TokenId token) {
    if (token < 0 || scratch.seen[static_cast<size_t>(token)]) return;
    scratch.seen[static_cast<size_t>(token)] = 1;
    tokens.push_back(token);
  };
  for (const auto& [token, bias] : params.logit_bias) note(token);
  if (penalized) {
    for (const TokenId token : row.counted_answer()) note(token);
    if (params.repetition_penalty != 1.0f || params.dry_multiplier != 0.0f) std::ranges::for_each(row.prompt, note);
  }
  std::ranges::for_each(params.allowed_token_ids, note);
  std::ranges::for_each(row.banned, note);
  for (const std::span<const TokenId> run : row.banned_runs) {
    if (ends_before_last(row.generated, run)) note(run.back());
  }
  for (const TokenId token : tokens) scratch.seen[static_cast<size_t>(token)] = 0;
  std::ranges::sort(tokens);
}

}  // namespace

bool find_candidates(const SamplingParams& params, const SampleRow& row, int most, bool may_draw,
                     SamplerScratch& scratch, Candidates& candidates) {
  const bool greedy = params.temperature == 0.0f, only_some = !params.allowed_token_ids.empty();
  if (params.logprobs) return false;
  if (!greedy && (uses_mirostat(params) || params.top_n_sigma > 0.0f || params.typical_p < 1.0f)) return false;
  const int top_k = std::cmp_less(params.top_k, row.vocab) ? std::max(0, params.top_k) : 0;
  find_adjusted(params, row, scratch, candidates.tokens);
  candidates.draws = false;
  if (greedy || only_some) {
    candidates.best = only_some ? 0 : 1;
    return true;
  }
  if (top_k > most) return false;
  const bool draws =
      may_draw && candidates.tokens.empty() && params.dynatemp_range <= 0.0f && params.xtc_probability <= 0.0f;
  if (!draws && top_k == 0) return false;
  candidates.draws = draws;
  candidates.best = top_k > 0 ? top_k : params.top_p < 1.0f || params.min_p > 0.0f ? most : 1;
  return true;
}

}  // namespace quire
