#include "engine/scheduler.h"

#include <algorithm>

namespace quire {
namespace {

int pages_for(int tokens, int page_tokens) { return (tokens + page_tokens - 1) / page_tokens; }

// Free pages that computing `rows` more tokens takes.
int pages_to_grow(const SequenceView& s, int rows, int page_tokens) {
  return std::max(0, pages_for(s.computed + rows, page_tokens) - s.pages) + (s.shared_tail ? 1 : 0);
}

Chunk chunk_of(const SequenceView& s, int rows) { return {s.id, s.computed, rows, s.computed + rows == s.tokens}; }

}  // namespace

StepPlan plan(const SchedulerState& state, const SchedulerLimits& limits) {
  StepPlan plan;
  int free = state.free_pages, rows = limits.max_rows;
  size_t running = state.running.size();  // those behind were preempted
  const auto take = [&](const SequenceView& s, int count) {
    free -= pages_to_grow(s, count, state.page_tokens);
    rows -= count;
    plan.chunks.push_back(chunk_of(s, count));
  };

  // Decoding: a row each, preempting from the end until it has its page.
  for (size_t i = 0; i < running && rows > 0; ++i) {
    const SequenceView& s = state.running[i];
    if (s.tokens - s.computed != 1) continue;
    while (free < pages_to_grow(s, 1, state.page_tokens) && running > i + 1) {
      const SequenceView& last = state.running[--running];
      free += last.own_pages;
      plan.preempted.push_back(last.id);
    }
    if (free < pages_to_grow(s, 1, state.page_tokens)) {  // it is the last itself
      --running;
      free += s.own_pages;
      plan.preempted.push_back(s.id);
      break;
    }
    take(s, 1);
  }

  // A chunk of a prompt: as many rows as there are, and pages for.
  const auto chunk_rows = [&](const SequenceView& s) {
    const int left = s.tokens - s.computed;
    if (!limits.chunked_prefill) return rows > 0 && pages_to_grow(s, left, state.page_tokens) <= free ? left : 0;
    int count = std::min(left, rows);
    const int usable = free - (s.shared_tail ? 1 : 0);
    if (usable < 0) return 0;
    return std::min(count, (s.pages + usable) * state.page_tokens - s.computed);
  };
  for (size_t i = 0; i < running && rows > 0; ++i) {
    const SequenceView& s = state.running[i];
    if (s.tokens - s.computed == 1) continue;
    if (const int count = chunk_rows(s); count > 0) take(s, count);
  }
  if (!plan.preempted.empty()) return plan;  // no place for more

  // Admission. Pages promised: what running prompts still need, and one for each to grow.
  int promised = 0;
  for (size_t i = 0; i < running; ++i) {
    const SequenceView& s = state.running[i];
    promised += pages_to_grow(s, s.tokens - s.computed, state.page_tokens) + 1;
  }
  for (const Chunk& c : plan.chunks) {  // already taken from `free`
    const auto s =
        std::find_if(state.running.begin(), state.running.end(), [&](const SequenceView& v) { return v.id == c.id; });
    promised -= pages_to_grow(*s, c.rows, state.page_tokens);
  }
  for (const SequenceView& s : state.waiting) {
    if (rows <= 0 || static_cast<int>(running) >= limits.max_running) break;
    const int needed = pages_to_grow(s, s.tokens - s.computed, state.page_tokens);
    if (needed + (running > 0 ? promised + 1 : 0) > free) break;
    const int count = chunk_rows(s);
    if (count <= 0) break;
    plan.admitted.push_back(s.id);
    promised += needed - pages_to_grow(s, count, state.page_tokens) + 1;
    take(s, count);
    ++running;
  }
  return plan;
}

}  // namespace quire
