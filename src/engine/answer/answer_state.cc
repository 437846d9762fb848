#include "engine/answer/answer_state.h"

#include <cassert>
#include <string>

#include "base/bits.h"
#include "sampling/mirostat.h"
#include "sampling/penalties.h"

namespace quire {

AnswerState::AnswerState(const RequestState& request, const Tokenizer* tokenizer)
    : matcher(request.matcher), dry_run(request.dry_run) {
  if (request.thought_budget) thoughts.emplace(*request.thought_budget);
  if (tokenizer) {
    detokenizer.emplace(*tokenizer, DecodeOptions{.skip_special = request.sampling.skip_special_tokens,
                                                  .continues = true,
                                                  .frame_added = request.frame_tokens});
  }
  if (matcher && has_penalties(request.sampling)) counted.reserve(static_cast<size_t>(request.max_new_tokens));
}

std::optional<TokenId> AnswerState::forced_token(const RequestState& request, int generated) {
  if (!matcher || (thoughts && thoughts->forced())) return std::nullopt;
  const SamplingParams& params = request.sampling;
  // A ban of the only token is a dead end, which sample() finds.
  if (params.logprobs || generated < params.min_tokens || !params.logit_bias.empty() ||
      !params.allowed_token_ids.empty() || request.banned_runs || uses_mirostat(params)) {
    return std::nullopt;
  }
  return matcher->forced_token();
}

// Penalties are for what the model writes. They do not count what the constraint writes: names, brackets, blanks, numbers.
void AnswerState::count(TokenId token) {
  const auto plain = matcher->vocabulary().plain_tokens();
  const bool counts = matcher->is_free() && !plain.empty() && has_bit(plain, static_cast<size_t>(token));
  counted.push_back(counts ? token : -2 - static_cast<TokenId>(counted.size()));
}

void AnswerState::take(const RequestState& request, TokenId token) {
  if (matcher && has_penalties(request.sampling)) count(token);
  if (dry_run) dry_run->push(token);
  if (!matcher) return;
  [[maybe_unused]] const bool allowed = matcher->advance(token);
  assert(allowed && "the sampler obeys the mask");
}

void AnswerState::take_draft(const RequestState& request, TokenId token) {
  take(request, token);
  if (!thoughts) return;
  std::string delta;
  if (detokenizer) detokenizer->push(token, delta);
  thoughts->add(delta);
}

}  // namespace quire
