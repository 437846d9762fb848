#include "engine/sequence.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace quire {
namespace {

bool contains(const TokenIds& ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

void refuse(const RequestState& request, int choice) {
  Output out;
  out.choice = choice;
  out.finish = FinishReason::kError;
  out.error = kOutOfMemory;
  try {
    request.callback(out);
  } catch (const std::bad_alloc&) {  // nothing more can be done for it
  }
}

Sequence::Sequence(SequenceId sequence_id, std::shared_ptr<RequestState> r, int index, const TokenIds& prompt,
                   const Tokenizer* tokenizer)
    : id(sequence_id),
      request(std::move(r)),
      choice(index),
      tokens(prompt),
      stop(request->stops, request->sampling.include_stop_str_in_output) {
  if (tokenizer) {
    detokenizer.emplace(*tokenizer,
                        DecodeOptions{.skip_special = request->sampling.skip_special_tokens, .continues = true});
  }
  tokens.reserve(prompt.size() + static_cast<size_t>(request->max_new_tokens));
}

void Sequence::refresh_page_ids(size_t from) {
  page_ids.resize(from);
  for (const PageId page : pages.pages().subspan(from)) page_ids.push_back(static_cast<int32_t>(index(page)));
}

SampleRow Sequence::sample_row(std::span<float> logits, int choice_index) const {
  const auto prompt = static_cast<size_t>(request->prompt_tokens);
  const std::span<const TokenId> all(tokens);
  SampleRow row{logits, all.first(prompt), all.subspan(prompt), {}, tokens.size(), static_cast<uint32_t>(choice_index)};
  if (request->banned_runs) row.banned_runs = *request->banned_runs;
  if (generated() < request->sampling.min_tokens) row.banned = request->banned_early;
  return row;
}

Usage Sequence::usage() const {
  Usage u{request->prompt_tokens, request->cached_tokens, generated(), 0, seconds(Clock::now() - request->submitted)};
  if (generated() > 0) u.ttft_seconds = seconds(first_token - request->submitted);
  u.queue_seconds = request->begun ? seconds(request->started - request->submitted) : u.seconds;
  return u;
}

void Sequence::attach_prompt_logprobs(Output& out) const {
  if (choice == 0 && request->sampling.prompt_logprobs) out.prompt_logprobs = std::move(request->prompt_logprobs);
}

bool Sequence::accept(const Sampled& sampled) {
  const SamplingParams& params = request->sampling;
  if (generated() == 0) first_token = Clock::now();
  tokens.push_back(sampled.token);

  Output out;
  out.choice = choice;
  if (generated() == 1) attach_prompt_logprobs(out);
  out.tokens.push_back({sampled.token, sampled.logprob, sampled.top_logprobs});
  const bool own_stop = contains(params.stop_token_ids, sampled.token);
  if (generated() > params.min_tokens && (own_stop || contains(request->end_tokens, sampled.token))) {
    out.finish = FinishReason::kStop;
    out.stop_token = sampled.token;
    if (own_stop) out.stop_reason = std::to_string(sampled.token);
  }
  std::string delta;
  if (detokenizer) {
    if (out.finish == FinishReason::kNone || (own_stop && params.include_stop_str_in_output))
      detokenizer->push(sampled.token, delta);
    if (out.finish == FinishReason::kNone && generated() >= request->max_new_tokens) out.finish = FinishReason::kLength;
    if (out.finish != FinishReason::kNone) delta += detokenizer->finish();
    StopStep step = generated() < params.min_tokens ? StopStep{delta, {}} : stop.push(delta);
    out.text = std::move(step.text);
    if (step.stopped()) {
      out.finish = FinishReason::kStop;
      out.stop_reason = request->stops[*step.which].text;
      out.stop_token.reset();
    } else if (out.finish != FinishReason::kNone) {
      out.text += stop.finish().text;
    }
  } else if (out.finish == FinishReason::kNone && generated() >= request->max_new_tokens) {
    out.finish = FinishReason::kLength;
  }
  if (out.finish != FinishReason::kNone) out.usage = usage();
  request->callback(out);
  return out.finish != FinishReason::kNone;
}

void Sequence::finish(FinishReason reason, const std::string& error) {
  try {
    request->callback(ending(reason, error));
  } catch (const std::bad_alloc&) {
    refuse(*request, choice);
  }
}

void Sequence::finish_pooling() {
  try {
    request->callback(ending_with_vector());
  } catch (const std::bad_alloc&) {
    refuse(*request, choice);
  }
}

Output Sequence::ending(FinishReason reason, const std::string& error) {
  Output out;
  out.choice = choice;
  out.finish = reason;
  out.error = error;
  const bool ended_well = reason == FinishReason::kLength || reason == FinishReason::kStop;
  if (ended_well && generated() == 0) attach_prompt_logprobs(out);
  if (ended_well && detokenizer) {
    out.text = stop.push(detokenizer->finish()).text;
    out.text += stop.finish().text;
  }
  out.usage = usage();
  return out;
}

Output Sequence::ending_with_vector() {
  Output out;
  out.choice = choice;
  out.finish = FinishReason::kStop;
  out.embedding = std::move(request->hidden);
  double squares = 0;
  for (const float x : out.embedding) squares += static_cast<double>(x) * static_cast<double>(x);
  const auto scale = static_cast<float>(squares > 0 ? 1 / std::sqrt(squares) : 0);
  for (float& x : out.embedding) x *= scale;
  out.usage = usage();
  return out;
}

}  // namespace quire
