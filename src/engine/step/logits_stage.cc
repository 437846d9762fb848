#include "engine/step/logits_stage.h"

#include <algorithm>

#include "base/error.h"
#include "sampling/penalties.h"
#include "speculate/rejection.h"

namespace quire {
namespace {

constexpr std::string_view kDeadEnd =
    "no token satisfies the structured output together with the request's other bans (min_tokens, logit_bias, "
    "allowed_token_ids, bad_words), or the vocabulary cannot spell what must follow";

constexpr std::string_view kTooMuch =
    "the structured output needs too many steps or states here; simplify its patterns, counts or alternatives";

// If a thought must end here, narrows `mask` to the token that ends it. Returns whether it did.
bool close_thought(ThoughtWatch& thoughts, std::span<uint32_t> mask) {
  const std::optional<TokenId> token = thoughts.forced();
  if (!token) return false;
  const auto word = static_cast<size_t>(*token) / 32;
  const uint32_t bit = 1u << (*token % 32);
  if ((mask[word] & bit) == 0) {
    thoughts.skip();
    return false;
  }
  std::ranges::fill(mask, 0u);
  mask[word] = bit;
  return true;
}

// What the next token is sampled from.
SampleRow next_row(Sequence& s, std::span<float> logits, SamplerScratch& scratch) {
  SampleRow row = s.sample_row(logits, s.choice);
  scratch.mask.resize((logits.size() + 31) / 32);
  if (!s.matcher && s.thoughts) std::ranges::fill(scratch.mask, ~0u);
  if (s.matcher) {
    s.matcher->fill_mask(scratch.mask);
    row.mask = scratch.mask;
    if (has_penalties(s.request->sampling)) {
      row.penalized = s.matcher->is_free();
      row.penalized_tokens = s.matcher->vocabulary().plain_tokens();
    }
  }
  if (s.thoughts && close_thought(*s.thoughts, scratch.mask)) row.mask = scratch.mask;
  return row;
}

// The next token by the rejection rule, for a draft that was drawn from q.
Sampled judge(Sequence& s, std::span<float> logits, TokenId draft, const TokenWeights& q, SamplerScratch& scratch) {
  const SamplingParams& params = s.request->sampling;
  const SampleRow row = next_row(s, logits, scratch);
  if (params.logprobs) scratch.raw.assign(logits.begin(), logits.end());
  const TokenWeights p = weigh_tokens(params, row, scratch);
  if (p.total <= 0) return {};
  const TokenId token = judge_draft(draft, q, p, {params.seed, row.choice, row.position}).token;
  return params.logprobs ? describe_token(scratch.raw, token, *params.logprobs) : Sampled{.token = token};
}

// Chooses the token after the last one, and further ones as long as the drafts are right: each token is that of its own
// position, whether it was drafted or not, unless drafts are judged. logits: [1 + drafts][vocab].
void choose(Sequence& s, std::span<float> logits, size_t vocab, std::span<const TokenId> drafts, bool force,
            SamplerScratch& scratch, Chosen& chosen) {
  if (s.request->max_new_tokens == 0) {
    chosen.end = FinishReason::kLength;
    return;
  }
  const size_t known = s.tokens.size();
  // Returns whether the answer goes on.
  const auto append = [&](const Sampled& token) {
    const size_t place = s.tokens.size() - known;
    if (std::cmp_equal(chosen.accepted, place) && place < drafts.size() && drafts[place] == token.token) {
      ++chosen.accepted;
      ++s.accepted;
    }
    return chosen.outputs.emplace_back(s.append(token)).finish == FinishReason::kNone;
  };
  s.drafted += static_cast<int>(drafts.size());
  for (size_t row = 0; std::cmp_less_equal(row, chosen.accepted); row = s.tokens.size() - known) {
    const auto of_row = logits.subspan(row * vocab, vocab);
    const bool judged = row < drafts.size() && !s.draft_weights.empty();
    const Sampled token = judged ? judge(s, of_row, drafts[row], s.draft_weights[row], scratch)
                                 : quire::sample(s.request->sampling, next_row(s, of_row, scratch), scratch);
    if (token.token == kNoToken) {  // nothing is allowed here
      chosen.end = s.matcher ? FinishReason::kDeadEnd : FinishReason::kStop;
      if (s.matcher) chosen.error = kDeadEnd;
      return;
    }
    if (!append(token)) return;
    while (force) {
      const std::optional<TokenId> forced = s.forced_token();
      if (!forced) break;
      ++chosen.forced;
      if (!append({.token = *forced})) return;
    }
  }
}

// The most probable token of each row.
void most_probable(std::span<const float> logits, size_t vocab, TokenIds& out) {
  for (; !logits.empty(); logits = logits.subspan(vocab)) {
    const auto row = logits.first(vocab);
    out.push_back(static_cast<TokenId>(std::ranges::max_element(row) - row.begin()));
  }
}

// Those that were chosen instead.
void take_predicted(const Sequence& s, Chosen& chosen) {
  const size_t count = std::min(chosen.predicted.size(), chosen.outputs.size());
  for (size_t i = 0; i < count; ++i) chosen.predicted[i] = s.tokens[s.tokens.size() - chosen.outputs.size() + i];
}

}  // namespace

LogitsStage::LogitsStage(Team& team, int vocab, bool force, bool predict)
    : team_(team),
      vocab_(static_cast<size_t>(vocab)),
      force_(force),
      predict_(predict),
      memory_(static_cast<size_t>(team.size())) {}

void LogitsStage::sample(const SampleRequest& request, std::span<float> logits, ThreadMemory& memory,
                         SampleResult& result) const {
  if (request.failure) std::rethrow_exception(request.failure);
  Sequence& s = *request.sequence;
  auto rows = logits.subspan(request.row * vocab_, (1 + static_cast<size_t>(request.drafts)) * vocab_);
  if (!request.samples) {
    result.described =
        describe_token(rows, s.tokens[static_cast<size_t>(request.position) + 1], *s.request->sampling.prompt_logprobs);
    return;
  }
  if (request.shares_row) {
    memory.row.assign(rows.begin(), rows.end());
    rows = memory.row;
  }
  const auto drafts = std::span<const TokenId>(s.drafts).first(static_cast<size_t>(request.drafts));
  if (predict_ && request.drafts > 0) most_probable(rows, vocab_, result.chosen.predicted);
  try {
    choose(s, rows, vocab_, drafts, force_, memory.scratch, result.chosen);
  } catch (const Error& error) {  // of the matcher; the tokens before it count
    if (!s.matcher || error.kind() != ErrorKind::kResource) throw;
    result.chosen.end = FinishReason::kRefused;
    result.chosen.error = kTooMuch;
  }
  take_predicted(s, result.chosen);
}

void LogitsStage::sample(std::span<const SampleRequest> requests, std::span<float> logits,
                         std::vector<SampleResult>& results) {
  results.clear();
  results.resize(requests.size());
  team_.for_tiles(static_cast<int>(requests.size()), [&](int tile, int thread) {
    SampleResult& result = results[static_cast<size_t>(tile)];
    try {
      sample(requests[static_cast<size_t>(tile)], logits, memory_[static_cast<size_t>(thread)], result);
    } catch (...) {
      result.failure = std::current_exception();
    }
  });
}

}  // namespace quire
