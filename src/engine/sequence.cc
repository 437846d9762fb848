#include "engine/sequence.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "sampling/mirostat.h"

namespace quire {
namespace {

bool contains(const TokenIds& ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

Sequence::Sequence(std::shared_ptr<RequestState> r, int choice_index, TokenIds so_far, const Tokenizer* tokenizer)
    : request(std::move(r)),
      choice(choice_index),
      forks_pending(choice_index == 0 && request->sampling.n > 1),
      tokens(std::move(so_far)),
      state(*request, tokenizer),
      mirostat_mu(first_mirostat_mu(request->sampling)),
      stop(request->stops, request->sampling.include_stop_str_in_output) {
  if (request->stop_finder) stop_finder = request->stop_finder();
  tokens.reserve(tokens.size() + static_cast<size_t>(request->max_new_tokens));
}

Usage Sequence::usage() const {
  Usage u{request->prompt_tokens, request->cached_tokens, generated(), 0, seconds(Clock::now() - request->submitted)};
  u.drafted_tokens = drafted;
  u.accepted_tokens = accepted;
  if (generated() > 0) u.ttft_seconds = seconds(first_token - request->submitted);
  u.queue_seconds = request->begun ? seconds(request->started - request->submitted) : u.seconds;
  return u;
}

void Sequence::attach_prompt_logprobs(Output& out) const {
  if (choice == 0 && request->sampling.prompt_logprobs) {
    out.prompt_logprobs = std::move(request->prompt_logprobs);
    request->prompt_logprobs.clear();
  }
}

Output Sequence::append(const Sampled& sampled) {
  const SamplingParams& params = request->sampling;
  if (generated() == 0) first_token = Clock::now();
  tokens.push_back(sampled.token);
  mirostat_mu = sampled.mirostat_mu;
  state.take(*request, sampled.token);

  Output out;
  out.choice = choice;
  out.tokens.push_back({sampled.token, sampled.logprob, sampled.top_logprobs});
  const bool own_stop = contains(params.stop_token_ids, sampled.token);
  if (generated() > params.min_tokens && (own_stop || contains(request->end_tokens, sampled.token))) {
    out.finish = FinishReason::kStop;
    out.stop_token = sampled.token;
    if (own_stop) out.stop_reason = std::to_string(sampled.token);
  }
  const bool full = generated() >= request->max_new_tokens;
  std::string delta;
  if (state.detokenizer) {
    if (out.finish == FinishReason::kNone || (own_stop && params.include_stop_str_in_output))
      state.detokenizer->push(sampled.token, delta);
    if (state.thoughts) state.thoughts->add(delta);
    if (out.finish == FinishReason::kNone && full) out.finish = FinishReason::kLength;
    if (out.finish != FinishReason::kNone) delta += state.detokenizer->finish();
    find_stop(std::move(delta), out);
  } else if (out.finish == FinishReason::kNone && full) {
    out.finish = FinishReason::kLength;
  }
  if (out.finish != FinishReason::kNone) out.usage = usage();
  attach_prompt_logprobs(out);
  return out;
}

// Gives `out` the text that can be shown, and ends it at a stop string.
void Sequence::find_stop(std::string delta, Output& out) {
  const bool counts = generated() >= request->sampling.min_tokens, ends = out.finish != FinishReason::kNone;
  std::optional<size_t> which;
  if (stop_finder) {
    which = stop_finder->add(delta, counts);
    if (!which && ends) which = stop_finder->end(out.finish == FinishReason::kStop);
    out.text = std::move(delta);
  } else if (counts) {
    StopStep step = stop.push(delta);
    which = step.which;
    out.text = std::move(step.text);
    if (!which && ends) out.text += stop.finish().text;
  } else {
    out.text = std::move(delta);
  }
  if (!which) return;
  assert(*which < request->stops.size());
  out.finish = FinishReason::kStop;
  out.stop_reason = request->stops[*which].text;
  out.stop_token.reset();
}

Output Sequence::finish(FinishReason reason, std::string_view error) {
  try {
    return ending(reason, error);
  } catch (const std::bad_alloc&) {
    Output out;
    out.choice = choice;
    out.finish = FinishReason::kError;
    out.error = kOutOfMemory;
    return out;
  }
}

Output Sequence::ending(FinishReason reason, std::string_view error) {
  Output out;
  out.choice = choice;
  out.finish = reason;
  out.error = error;
  out.usage = usage();
  if (reason != FinishReason::kLength && reason != FinishReason::kStop) return out;
  if (!wants_answer(*request)) {
    out.embedding = std::move(request->hidden);
    return out;
  }
  if (generated() == 0) attach_prompt_logprobs(out);
  if (state.detokenizer) {
    out.text = stop.push(state.detokenizer->finish()).text;
    out.text += stop.finish().text;
  }
  return out;
}

}  // namespace quire
