// What the next step computes: a pure function from the state of all sequences to a plan.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

using SequenceId = uint64_t;

// A sequence as the scheduler sees it.
struct SequenceView {
  SequenceId id = 0;
  int tokens = 0;            // prompt and answer so far
  int computed = 0;          // of them, those whose keys and values are in its pages; < tokens
  int pages = 0;             // it holds
  int own_pages = 0;         // of them, those that nobody shares: what preempting it frees
  bool shared_tail = false;  // its next token falls into a shared page, which must be copied first

  bool operator==(const SequenceView&) const = default;
};

struct SchedulerState {
  std::vector<SequenceView> running;  // first come first; all with pages
  std::vector<SequenceView> waiting;  // first come first
  int free_pages = 0, page_tokens = 16;
};

struct SchedulerLimits {
  int max_rows = 512;  // of a step
  int max_running = 64;
  bool chunked_prefill = true;  // false: a prompt is computed whole or not at all (it may exceed max_rows)
};

// Tokens [first, first + rows) of one sequence; with logits if they end what is known of it.
struct Chunk {
  SequenceId id = 0;
  int first = 0, rows = 0;
  bool wants_logits = false;
  bool operator==(const Chunk&) const = default;
};

struct StepPlan {
  std::vector<SequenceId> preempted;  // from the end of `running`: give their pages back and wait again, in front
  std::vector<SequenceId> admitted;   // from the front of `waiting`: run from now on
  std::vector<Chunk> chunks;          // decoding sequences first, then prompt chunks; at most max_rows rows
  bool operator==(const StepPlan&) const = default;
};

// One row for each decoding sequence first, so that a long prompt delays a running answer by one bounded step at most;
// then the prompts of running sequences, then of waiting ones, first come first, until the rows are used up.
//
// When pages run out, the sequence that came last is preempted. A waiting one is admitted only if its tokens fit beside
// what all running ones still need for theirs, and leave every running one a page to grow into; so a sequence that runs
// alone always runs to its end, if the pool holds its longest form.
StepPlan plan(const SchedulerState& state, const SchedulerLimits& limits);

}  // namespace quire
