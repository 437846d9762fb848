#include "engine/sequence.h"

#include <algorithm>
#include <cassert>

namespace quire {
namespace {

bool contains(const TokenIds& ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Sequence::Sequence(SequenceId sequence_id, std::shared_ptr<RequestState> r, int index, const TokenIds& prompt,
                   const Tokenizer* tokenizer)
    : id(sequence_id),
      request(std::move(r)),
      choice(index),
      tokens(prompt),
      stop(request->sampling.stop, request->sampling.include_stop_str_in_output) {
  if (tokenizer) detokenizer.emplace(*tokenizer, DecodeOptions{.skip_special = true, .continues = true});
  tokens.reserve(prompt.size() + static_cast<size_t>(request->max_new_tokens));
}

SequenceView Sequence::view(const PagePool& pool) const {
  SequenceView v;
  v.id = id;
  v.tokens = static_cast<int>(tokens.size());
  v.computed = computed;
  v.pages = static_cast<int>(pages.pages().size());
  for (const PageId page : pages.pages()) v.own_pages += pool.references(page) == 1;
  // Only the page that the next token falls into can be shared and written.
  v.shared_tail = computed < v.pages * pool.page_tokens() &&
                  pool.shared(pages.pages()[static_cast<size_t>(computed / pool.page_tokens())]);
  return v;
}

void Sequence::grow(PagePool& pool, int rows, std::vector<PageCopy>& copies) {
  [[maybe_unused]] const bool grown = pages.grow(pool, computed + rows - pages.tokens());
  assert(grown);
  if (const auto copy = pages.make_writable(pool, computed)) copies.push_back(*copy);
  page_ids.clear();
  for (const PageId page : pages.pages()) page_ids.push_back(static_cast<int32_t>(index(page)));
}

void Sequence::release(PagePool& pool) {
  pages.release(pool);
  computed = 0;
}

SampleRow Sequence::sample_row(std::span<float> logits, int choice_index) const {
  const auto prompt = static_cast<size_t>(request->prompt_tokens);
  const std::span<const TokenId> all(tokens);
  SampleRow row{logits, all.first(prompt), all.subspan(prompt), {}, tokens.size(), static_cast<uint32_t>(choice_index)};
  if (generated() < request->sampling.min_tokens) row.banned = request->banned_early;
  return row;
}

Usage Sequence::usage() const {
  Usage u{request->prompt_tokens, 0, generated(), 0, seconds(Clock::now() - request->submitted)};
  if (generated() > 0) u.ttft_seconds = seconds(first_token - request->submitted);
  return u;
}

bool Sequence::accept(const Sampled& sampled) {
  const SamplingParams& params = request->sampling;
  if (generated() == 0) first_token = Clock::now();
  tokens.push_back(sampled.token);

  Output out;
  out.choice = choice;
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
      out.stop_reason = params.stop[*step.which];
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
  Output out;
  out.choice = choice;
  out.finish = reason;
  out.error = error;
  out.usage = usage();
  request->callback(out);
}

}  // namespace quire
