#include "sampling/candidates.h"

#include <algorithm>
#include <cassert>
#include <span>

#include "sampling/mirostat.h"
#include "sampling/penalties.h"

namespace quire {

std::optional<int> best_candidates(const SamplingParams& params) {
  if (params.logprobs) return {};
  if (params.temperature == 0.0f) return 1;
  if (params.top_k <= 0 || uses_mirostat(params) || params.top_n_sigma > 0.0f || params.typical_p < 1.0f) return {};
  return params.top_k;
}

void find_candidates(const SamplingParams& params, const SampleRow& row, int best, SamplerScratch& scratch,
                     Candidates& candidates) {
  assert(row.vocab > 0);
  const bool penalized = row.penalized && has_penalties(params);
  scratch.reserve_counts(row.vocab);
  std::vector<TokenId>& tokens = candidates.tokens;
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
  candidates.best = params.allowed_token_ids.empty() ? best : 0;
}

}  // namespace quire
