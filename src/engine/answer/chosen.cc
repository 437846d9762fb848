#include "engine/answer/chosen.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::string_view kDeadEnd =
    "no token satisfies the structured output together with the request's other bans (min_tokens, logit_bias, "
    "allowed_token_ids, bad_words), or the vocabulary cannot spell what must follow";

constexpr std::string_view kTooMuch =
    "the structured output needs too many steps or states here; simplify its patterns, counts or alternatives";

void refuse(Chosen& chosen) {
  chosen.end = FinishReason::kRefused;
  chosen.error = kTooMuch;
}

// Appends a token. Returns whether the answer goes on.
bool append(Sequence& s, const Sampled& token, std::span<const TokenId> drafts, Chosen& chosen) {
  const size_t place = chosen.outputs.size();
  if (std::cmp_equal(chosen.accepted, place) && place < drafts.size() && drafts[place] == token.token) {
    ++chosen.accepted;
    ++s.accepted;
  }
  return chosen.outputs.emplace_back(s.append(token)).finish == FinishReason::kNone;
}

void append_all(Sequence& s, const SampleRequest& request, const SampleResult& result, bool force, Chosen& chosen) {
  for (const SampledToken& token : result.tokens) {
    if (token.skips_thought) s.state.thoughts->skip();
    chosen.forced += token.forced;
    if (!append(s, token.sampled, request.drafts, chosen)) return;
  }
  if (result.refused) return refuse(chosen);
  if (result.dead_end) {
    chosen.end = s.state.matcher ? FinishReason::kDeadEnd : FinishReason::kStop;
    if (s.state.matcher) chosen.error = kDeadEnd;
    return;
  }
  while (force) {
    const std::optional<TokenId> forced = s.state.forced_token(*s.request, s.generated());
    if (!forced) return;
    ++chosen.forced;
    if (!append(s, {.token = *forced}, request.drafts, chosen)) return;
  }
}

}  // namespace

Chosen take_sampled(Sequence& s, const SampleRequest& request, SampleResult&& result, bool force) {
  Chosen chosen{.outputs = {}, .end = {}, .error = {}, .predicted = std::move(result.predicted)};
  if (s.request->max_new_tokens == 0) {
    chosen.end = FinishReason::kLength;
    return chosen;
  }
  s.drafted += static_cast<int>(request.drafts.size());
  try {
    append_all(s, request, result, force, chosen);
  } catch (const Error& error) {  // The matcher's limits are reached. The tokens before count.
    if (!s.state.matcher || error.kind() != ErrorKind::kResource) throw;
    refuse(chosen);
  }
  for (size_t i = 0; i < std::min(chosen.predicted.size(), chosen.outputs.size()); ++i)
    chosen.predicted[i] = s.tokens[s.tokens.size() - chosen.outputs.size() + i];
  return chosen;
}

}  // namespace quire
