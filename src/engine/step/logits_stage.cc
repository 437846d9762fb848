#include "engine/step/logits_stage.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/bits.h"
#include "base/error.h"
#include "sampling/penalties.h"
#include "speculate/rejection.h"

namespace quire {
namespace {

bool allows(std::span<const uint32_t> mask, TokenId token) { return has_bit(mask, static_cast<size_t>(token)); }

// If a thought must end here, narrows the mask to the token that ends it and returns true. skips: the mask forbids it.
bool close_thought(ThoughtWatch& thoughts, std::span<uint32_t> mask, bool& skips) {
  const std::optional<TokenId> token = thoughts.forced();
  if (!token) return false;
  if (!allows(mask, *token)) {
    thoughts.skip();
    skips = true;
    return false;
  }
  std::ranges::fill(mask, 0u);
  mask[static_cast<size_t>(*token) / 32] = 1u << (*token % 32);
  return true;
}

TokenId most_probable(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

// Whether the row after so many drafts is sampled by the rejection rule.
bool is_judged(const SampleRequest& request, size_t drafts) {
  return drafts < request.draft_weights.size() && drafts < request.drafts.size();
}

}  // namespace

LogitsStage::LogitsStage(Team& team, int vocab, bool force, bool predict)
    : team_(team),
      vocab_(static_cast<size_t>(vocab)),
      mask_words_((vocab_ + 31) / 32),
      force_(force),
      predict_(predict),
      memory_(static_cast<size_t>(team.size())) {}

// ---- before the pass ----

void LogitsStage::prepare(std::span<SampleRequest> requests) {
  size_t count = 0;
  for (SampleRequest& request : requests) {
    if (!request.state) continue;
    request.place = static_cast<int>(count);
    count += 1 + request.drafts.size();
  }
  if (count == 0) return;
  places_.assign(count, {});
  masks_.resize(std::max(masks_.size(), count * mask_words_));
  team_.for_tiles(static_cast<int>(requests.size()), [&](int tile, int) {
    SampleRequest& request = requests[static_cast<size_t>(tile)];
    if (!request.state || request.failure) return;
    try {
      fill_places(request, *std::exchange(request.state, std::nullopt));
    } catch (...) {
      request.failure = std::current_exception();
    }
  });
}

// Stops at the first draft that cannot be right: the rows after it are of no use.
void LogitsStage::fill_places(const SampleRequest& request, AnswerState state) {
  const bool constrained = state.matcher.has_value();
  auto at = static_cast<size_t>(request.place);
  try {
    for (size_t drafts = 0;; ++drafts) {
      Place& place = places_[at];
      fill(place, mask(at), request, state, drafts);
      if (drafts == request.drafts.size()) return;
      const TokenId draft = request.drafts[drafts];
      if (place.forced ? *place.forced != draft : place.masked && !allows(mask(at), draft)) return;
      ++at;
      state.take_draft(*request.request, draft);
    }
  } catch (const Error& error) {  // The matcher's limits are reached. The tokens before count.
    if (!constrained || error.kind() != ErrorKind::kResource) throw;
    places_[at].refused = true;
  }
}

void LogitsStage::fill(Place& place, std::span<uint32_t> mask, const SampleRequest& request, AnswerState& state,
                       size_t drafts) const {
  // The first row's forced tokens were taken when the token before them was.
  if (force_ && drafts > 0) {
    place.forced = state.forced_token(*request.request, request.generated() + static_cast<int>(drafts));
    if (place.forced) return;
  }
  if (state.matcher) {
    state.matcher->fill_mask(mask);
    if (has_penalties(request.request->sampling)) {
      place.penalized = state.matcher->is_free();
      place.penalized_tokens = state.matcher->vocabulary().plain_tokens();
    }
  } else {
    std::ranges::fill(mask, ~0u);
  }
  const bool closes = state.thoughts && close_thought(*state.thoughts, mask, place.skips_thought);
  place.masked = state.matcher || closes;
  place.counted = state.counted;
  place.dry_run = state.dry_run;
}

// What is sampled after the first `drafts` drafts, but for the logits. generated: the answer so far, those drafts included.
SampleRow LogitsStage::row_of(const SampleRequest& request, std::span<const TokenId> generated, size_t drafts) {
  const RequestState& r = *request.request;
  SampleRow row{{},
                request.tokens.first(static_cast<size_t>(r.prompt_tokens)),
                generated,
                {},
                request.tokens.size() + drafts,
                static_cast<uint32_t>(request.choice)};
  row.vocab = vocab_;
  if (r.banned_runs) row.banned_runs = *r.banned_runs;
  if (std::cmp_less(generated.size(), r.sampling.min_tokens)) row.banned = r.banned_early;
  if (request.place < 0) return row;
  const size_t at = static_cast<size_t>(request.place) + drafts;
  const Place& place = places_[at];
  if (place.masked) row.mask = mask(at);
  row.penalized = place.penalized;
  row.penalized_tokens = place.penalized_tokens;
  row.counted = place.counted;
  if (place.dry_run) row.dry_run = &*place.dry_run;
  return row;
}

std::span<const TokenId> LogitsStage::answer_and_drafts(const SampleRequest& request, ThreadMemory& memory) const {
  const auto answer = request.tokens.subspan(static_cast<size_t>(request.request->prompt_tokens));
  if (request.drafts.empty()) return answer;
  memory.generated.assign(answer.begin(), answer.end());
  memory.generated.insert(memory.generated.end(), request.drafts.begin(), request.drafts.end());
  return memory.generated;
}

void LogitsStage::choose_picks(std::span<const SampleRequest> requests, size_t rows,
                               std::vector<std::optional<Pick>>& picks) {
  picks.assign(rows, std::nullopt);
  if (candidates_.size() < rows) candidates_.resize(rows);
  pick_masks_.resize(std::max(pick_masks_.size(), rows * mask_words_));
  team_.for_tiles(static_cast<int>(requests.size()), [&](int tile, int thread) {
    try {
      pick_rows(requests[static_cast<size_t>(tile)], memory_[static_cast<size_t>(thread)], picks);
    } catch (const std::bad_alloc&) {  // rows are needed whole, then
    }
  });
  size_t words = 0, arguments = 0;
  for (std::optional<Pick>& pick : picks) {
    if (!pick) continue;
    const size_t more_words = pick->room(), more_arguments = pick->mask.size() + pick->columns.size();
    if (words + more_words > rows * Pick::kWordsPerRow || arguments + more_arguments > Pick::kMostArguments) {
      pick.reset();
      continue;
    }
    words += more_words;
    arguments += more_arguments;
  }
}

// Rows without a pick are needed whole.
void LogitsStage::pick_rows(const SampleRequest& request, ThreadMemory& memory, std::span<std::optional<Pick>> picks) {
  if (!request.samples || request.failure || request.whole || (predict_ && !request.drafts.empty())) return;
  if (request.shares_row && request.choice > 0) return;  // needs what choice 0 does
  const SamplingParams& params = request.request->sampling;
  const auto answer = answer_and_drafts(request, memory);
  const size_t known = answer.size() - request.drafts.size();
  for (size_t drafts = 0; drafts <= request.drafts.size(); ++drafts) {
    const Place* const place = request.place < 0 ? nullptr : &places_[static_cast<size_t>(request.place) + drafts];
    std::optional<Pick>& pick = picks[request.row + drafts];
    if (place && (place->refused || place->forced)) {
      pick.emplace();  // not sampled
    } else if (!is_judged(request, drafts)) {
      const size_t at = request.row + drafts;
      Candidates& candidates = candidates_[at];
      const SampleRow row = row_of(request, answer.first(known + drafts), drafts);
      const bool may_draw = !request.shares_row;  // where choices share a row, each has a draw of its own
      if (!find_candidates(params, row, Pick::kMostBest, may_draw, memory.scratch, candidates)) continue;
      pick = pick_for(params, row, candidates, std::span(pick_masks_).subspan(at * mask_words_, mask_words_));
    }
  }
}

// ---- after it ----

// at: the row of logits.
void LogitsStage::set_logits(SampleRow& row, const SampleRequest& request, size_t at, const ForwardOutput& output,
                             ThreadMemory& memory) const {
  if (at >= output.picked.size() || !output.picked[at]) {
    row.logits = logits_at(at, output);
    if (!request.shares_row) return;
    memory.row.assign(row.logits.begin(), row.logits.end());
    row.logits = memory.row;
    return;
  }
  memory.picked.set(*output.picked[at], row);
}

// The next token by the rejection rule, for a draft that was drawn.
Sampled LogitsStage::judge(const SampleRequest& request, size_t draft, const SampleRow& row,
                           SamplerScratch& scratch) const {
  const SamplingParams& params = request.request->sampling;
  if (params.logprobs) scratch.raw.assign(row.logits.begin(), row.logits.end());
  const TokenWeights p = weigh_tokens(params, row, scratch);
  if (p.total <= 0) return {};
  const DrawKey key{params.seed, row.choice, row.position};
  const TokenId token = judge_draft(request.drafts[draft], request.draft_weights[draft], p, key).token;
  return params.logprobs ? describe_token(scratch.raw, token, *params.logprobs) : Sampled{.token = token};
}

// Chooses the token after the last one, and further ones as long as the drafts are right: each token is that of its own
// position, whether it was drafted or not, unless drafts are judged.
void LogitsStage::choose(const SampleRequest& request, const ForwardOutput& output, ThreadMemory& memory,
                         SampleResult& result) {
  double mirostat_mu = request.mirostat_mu;
  const auto answer = answer_and_drafts(request, memory);
  const size_t known = answer.size() - request.drafts.size();
  for (size_t drafts = 0; drafts <= request.drafts.size(); ++drafts) {
    SampledToken chosen;
    const Place* place = request.place < 0 ? nullptr : &places_[static_cast<size_t>(request.place) + drafts];
    if (place && place->refused) {
      result.refused = true;
      return;
    }
    if (place && place->forced) {
      chosen = {.sampled = {.token = *place->forced}, .forced = true};
    } else {
      SampleRow row = row_of(request, answer.first(known + drafts), drafts);
      set_logits(row, request, request.row + drafts, output, memory);
      row.mirostat_mu = mirostat_mu;
      chosen.sampled = is_judged(request, drafts) ? judge(request, drafts, row, memory.scratch)
                                                  : quire::sample(request.request->sampling, row, memory.scratch);
      chosen.skips_thought = place && place->skips_thought;
    }
    if (chosen.sampled.token == kNoToken) {
      result.dead_end = true;
      return;
    }
    mirostat_mu = chosen.sampled.mirostat_mu;
    const TokenId token = result.tokens.emplace_back(std::move(chosen)).sampled.token;
    if (drafts < request.drafts.size() && request.drafts[drafts] != token) return;
  }
}

void LogitsStage::sample(const SampleRequest& request, const ForwardOutput& output, ThreadMemory& memory,
                         SampleResult& result) {
  if (request.failure) std::rethrow_exception(request.failure);
  if (!request.samples) {
    result.described =
        describe_token(logits_at(request.row, output), request.next, *request.request->sampling.prompt_logprobs);
    return;
  }
  if (request.request->max_new_tokens == 0) return;
  if (output.logits.empty() && !output.picked.empty() && !output.picked[request.row]) {
    result.lost = true;
    return;
  }
  for (size_t i = 0; predict_ && !request.drafts.empty() && i <= request.drafts.size(); ++i)
    result.predicted.push_back(most_probable(logits_at(request.row + i, output)));
  choose(request, output, memory, result);
}

void LogitsStage::sample(std::span<const SampleRequest> requests, const ForwardOutput& output,
                         std::vector<SampleResult>& results) {
  results.clear();
  results.resize(requests.size());
  team_.for_tiles(static_cast<int>(requests.size()), [&](int tile, int thread) {
    SampleResult& result = results[static_cast<size_t>(tile)];
    try {
      sample(requests[static_cast<size_t>(tile)], output, memory_[static_cast<size_t>(thread)], result);
    } catch (...) {
      result.failure = std::current_exception();
    }
  });
}

}  // namespace quire
