#include "engine/ahead/ahead_step.h"

#include <algorithm>
#include <new>
#include <utility>

#include "sampling/penalties.h"

namespace quire {
namespace {

// Whether the sequence's next row is sampled as this one is, whatever token it gets.
bool samples_alike(const SampleRequest& sample) {
  const RequestState& r = *sample.request;
  return sample.samples && !sample.failure && sample.drafts.empty() && sample.place < 0 && !sample.shares_row &&
         !sample.whole && !has_penalties(r.sampling) && (!r.banned_runs || r.banned_runs->empty());
}

bool goes_on(const SampleRequest& sample) { return sample.generated() + 1 < sample.request->max_new_tokens; }

}  // namespace

// nullptr: it needs more than a pick, or what no other row needs.
const Pick* AheadStep::pick_of(const EngineStep& step, size_t sample) const {
  const SampleRequest& request = step.samples[sample];
  const auto& picks = step.forward.picks;
  if (!samples_alike(request) || request.row >= picks.size() || !picks[request.row]) return nullptr;
  const Pick& pick = *picks[request.row];
  return pick.best > 0 && pick.columns.empty() && pick.mask.empty() ? &pick : nullptr;
}

void AheadStep::launch(const EngineStep& step) {
  if (launched_) return;
  Pass& pass = passes_[next_];
  try {
    if (!build(step, pass)) return;
  } catch (const std::bad_alloc&) {  // the next step is planned as usual
    return;
  }
  launched_ = orders_.run_ahead(pass.input);
}

bool AheadStep::build(const EngineStep& step, Pass& pass) {
  const size_t running = roster_.running().size();
  if (step.samples.size() != running || step.sequences.size() != running || !step.forks.empty()) return false;
  if (!roster_.waiting().empty() && !roster_.full()) return false;  // the next step may begin others
  for (size_t i = 0; i < running; ++i)
    if (!pick_of(step, i)) return false;
  const int groups = cache_.needs().groups;
  if (cache_.shared().available_units() < static_cast<int>(running) * groups) return false;
  pass.input.clear();
  pass.requests.clear();
  for (size_t i = 0; i < running; ++i) {
    if (!goes_on(step.samples[i])) continue;
    Sequence& s = *step.sampling[i].sequence;
    cache_.grow(s, 1, 0);
    StepBuilder::add_ahead(s, static_cast<int>(step.samples[i].row), *pick_of(step, i), pass.input);
    pass.requests.push_back(s.request);
  }
  return !pass.input.rows.empty();
}

bool AheadStep::take(StepPlan& plan, EngineStep& step) {
  launched_ = false;
  const ForwardInput& input = passes_[next_].input;
  next_ = 1 - next_;
  plan.clear();
  step.clear();
  by_id_.clear();
  for (Sequence& s : roster_.running()) by_id_.emplace_back(s.id, &s);
  std::ranges::sort(by_id_);
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const auto known = std::ranges::lower_bound(by_id_, input.sequences[i], {}, &RunningSequence::first);
    Sequence* const s = known != by_id_.end() && known->first == input.sequences[i] ? known->second : nullptr;
    const int position = input.rows[i].position;
    // The token of a sequence that has not got one is not what the pass has computed.
    if (!s || s->computed != position || std::cmp_not_equal(s->tokens.size(), position + 1)) {
      ++step.logits;
      continue;
    }
    Chunk chunk{.id = s->id, .first = position, .rows = 1, .wants_logits = true, .decodes = true};
    plan.chunks.push_back(chunk);
    step.sequences.push_back(s);
    builder_.add(*s, chunk, step);
  }
  step.forward.picks = input.picks;
  return !step.samples.empty();
}

}  // namespace quire
