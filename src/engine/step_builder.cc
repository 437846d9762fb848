#include "engine/step_builder.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <span>
#include <utility>

#include "engine/pool_stage.h"
#include "sampling/philox.h"

namespace quire {
namespace {

Span span_of(const Sequence& s, int row, int rows, int position) {
  return {.row = row,
          .rows = rows,
          .position = position,
          .tables = s.pages.units(),
          .state = s.cached.state.slot,
          .state_copies = s.cached.state.copies,
          .rope_variant = s.request->rope_variant,
          .adapter = adapter_number(*s.request)};
}

// Whose next token the request samples.
void set_answer(SampleRequest& request, const Sequence& s) {
  request.choice = s.choice;
  request.tokens = s.tokens;
  request.mirostat_mu = s.mirostat_mu;
  if (!s.state.is_plain()) request.state = s.state;
}

}  // namespace

void EngineStep::clear() {
  sequences.clear();
  forward.clear();
  pooled.clear();
  kept.clear();
  samples.clear();
  sampling.clear();
  forks.clear();
  logits = 0;
  drafts = 0;
}

StepBuilder::StepBuilder(const LoadedModel& model, const PageCache& cache, DraftModel::Reads reads)
    : model_(model),
      cache_(cache),
      tokenizer_(model.target.text.tokenizer ? &*model.target.text.tokenizer : nullptr),
      reads_(reads) {}

void StepBuilder::add(Sequence& s, const Chunk& chunk, EngineStep& step) const {
  ForwardInput& forward = step.forward;
  const size_t row = forward.rows.size(), logits = step.logits;
  add_rows(s, chunk, step);
  const auto of_chunk = std::span(forward.rows).subspan(row);
  if (reads_ == DraftModel::Reads::kAllRows) {
    for (Row& r : of_chunk) r.wants_hidden = true;
  } else if (reads_ == DraftModel::Reads::kSampledRows && chunk.wants_logits) {
    for (Row& r : of_chunk.last(static_cast<size_t>(1 + chunk.drafts))) r.wants_hidden = true;
  }
  step.drafts += chunk.drafts;
  s.computed += chunk.rows;
  s.decodes |= chunk.wants_logits;
  if (!wants_answer(*s.request)) add_pooled(s, chunk, static_cast<int>(row), logits, step);
}

void StepBuilder::add_ahead(const Sequence& s, int row, const Pick& pick, ForwardInput& forward) {
  forward.sequences.push_back(s.id);
  forward.spans.push_back(span_of(s, static_cast<int>(forward.rows.size()), 1, s.computed));
  forward.rows.push_back({.token = 0, .position = s.computed, .wants_logits = true});
  forward.picked.push_back(row);
  Pick next = pick;
  if (next.draw)
    next.draw->uniform =
        uniform_at(s.request->sampling.seed, static_cast<uint32_t>(s.choice), static_cast<uint64_t>(s.computed) + 1);
  forward.picks.emplace_back(next);
}

// row: the chunk's first one; logits: how many there were before it.
void StepBuilder::add_pooled(Sequence& s, const Chunk& chunk, int row, size_t logits, EngineStep& step) const {
  ForwardInput& forward = step.forward;
  const size_t at = forward.spans.size() - 1;
  if (keeps_logits(*s.request)) {
    if (chunk.first == 0) s.request->hidden.clear();
    if (step.logits > logits)
      step.kept.push_back({.chunk = at, .row = logits, .rows = step.logits - logits, .last = chunk.wants_logits});
    return;
  }
  if (auto pooled = rows_to_pool(*s.request, chunk, row, model_.info.hidden)) {
    forward.pooled.push_back(std::move(*pooled));
    step.pooled.push_back(at);
  }
}

void StepBuilder::add_rows(Sequence& s, const Chunk& chunk, EngineStep& step) const {
  ForwardInput& forward = step.forward;
  forward.sequences.push_back(s.id);
  forward.spans.push_back(span_of(s, static_cast<int>(forward.rows.size()), chunk.rows + chunk.drafts, chunk.first));
  forward.spans.back().drafts = chunk.drafts;
  const bool all = s.wants_all_logits(), answers = wants_answer(*s.request),
             gives = answers || keeps_logits(*s.request);
  for (int i = 0; i < chunk.rows; ++i) {
    const int position = chunk.first + i;
    const bool last = position + 1 == static_cast<int>(s.tokens.size());
    const bool wanted = gives && (last || all);
    const int32_t segment =
        model_.target.config.segments > 1 && std::cmp_greater_equal(position, s.request->second_text);
    forward.rows.push_back({.token = s.tokens[static_cast<size_t>(position)],
                            .position = position,
                            .wants_logits = wanted,
                            .segment = segment});
    if (wanted && answers) add_sample(s, chunk, position, step);
    if (wanted && !answers) ++step.logits;
  }
  for (int i = 0; i < chunk.drafts; ++i) {
    forward.rows.push_back(
        {.token = s.drafts[static_cast<size_t>(i)], .position = chunk.first + chunk.rows + i, .wants_logits = true});
  }
}

// The row at `position`: the last one is sampled, and those of prompts whose log-probabilities are wanted are described.
void StepBuilder::add_sample(Sequence& s, const Chunk& chunk, int position, EngineStep& step) const {
  const auto next = static_cast<size_t>(position) + 1;
  SampleRequest request{.request = s.request, .row = step.logits++, .samples = next == s.tokens.size()};
  const Sampling sampling{.sequence = &s, .position = position, .first_draft = step.drafts, .decodes = chunk.decodes};
  if (!request.samples) {
    request.next = s.tokens[next];
  } else {
    request.drafts = std::span(s.drafts).first(static_cast<size_t>(chunk.drafts));
    request.draft_weights = s.draft_weights;
    request.whole = std::exchange(s.wants_row, false);
    step.logits += request.drafts.size();
    try {
      request.shares_row = s.forks_pending && s.request->max_new_tokens > 0;
      if (request.shares_row) fork(request, sampling, step);
      set_answer(request, s);
    } catch (const std::bad_alloc&) {  // ends this request alone
      request.failure = std::current_exception();
    }
  }
  step.samples.push_back(std::move(request));
  step.sampling.push_back(sampling);
}

// For n > 1, where the prompt of choice 0 ends: the other choices sample from its logits, too.
void StepBuilder::fork(const SampleRequest& request, Sampling sampling, EngineStep& step) const {
  const Sequence& first = *sampling.sequence;
  Sequences choices;
  std::vector<SampleRequest> requests;
  for (int choice = 1; choice < first.request->sampling.n; ++choice) {
    Sequence& s = choices.emplace_back(first.request, choice, first.tokens, tokenizer_);
    cache_.begin(s);
    set_answer(requests.emplace_back(request), s);
  }
  step.samples.reserve(step.samples.size() + choices.size());
  step.sampling.reserve(step.sampling.size() + choices.size());
  std::ranges::move(requests, std::back_inserter(step.samples));
  for (Sequence& choice : choices) {
    sampling.sequence = &choice;
    step.sampling.push_back(sampling);
  }
  step.forks.splice(step.forks.end(), choices);
}

}  // namespace quire
