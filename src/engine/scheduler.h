// What the next step computes: a pure function from the state of all sequences to a plan.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/step_costs.h"

namespace quire {

using SequenceId = uint64_t;

// A sequence as the scheduler sees it.
struct SequenceView {
  SequenceId id = 0;
  uint64_t arrival = 0;  // of its request; lower came first
  int priority = 0;      // lower goes first and is preempted last
  int tokens = 0;        // prompt and answer so far
  int computed = 0;      // of them, those whose keys and values are in its pages; < tokens. Waiting: that the prefix
                         // cache holds
  int pages = 0;         // it holds; waiting: full pages of the cached prefix
  int own_pages = 0;     // of them, those that nobody else uses: what preempting it gives back
  bool shared_tail = false;  // its next token falls into a shared page, which must be copied first
  bool loading = false;      // its pages are being read from the page store: no rows yet
  bool all_logits = false;   // every row of its prompt wants logits
  uint64_t next_page = 0;    // names the content of the next page its prompt fills, the same for equal beginnings; 0:
                             // nothing that others could share

  // Only for waiting sequences.
  int idle_pages = 0;  // of `pages`, those that count as free until it is admitted
  int loads = 0;       // pages behind `computed` that the page store has, where reading beats computing
  double waited = 0;   // seconds, since it came

  bool decodes() const { return tokens - computed == 1; }
  bool operator==(const SequenceView&) const = default;
};

struct SchedulerState {
  std::vector<SequenceView> running;  // in the order of goes_before; all with pages
  std::vector<SequenceView> waiting;  // in the order of admission (order_waiting)
  int free_pages = 0;                 // and those that evicting cached prefixes gives
  int page_tokens = 16;
};

// The order among running sequences: the oldest of all first, so that it always gets to its end; then by priority and
// arrival.
void sort_running(std::vector<SequenceView>& running);

struct SchedulerLimits {
  int max_rows = 512;  // of a step
  int max_running = 64;
  int max_logits = 64;  // rows of a step with logits; at least max_running
  // false: a prompt is computed whole or not at all (it may exceed max_rows), but for those that want all logits
  bool chunked_prefill = true;
  bool static_batches = false;  // admit only when nothing runs: the classic baseline
  // While answers are being written, each prompt that is not done may add to a step the time that it takes without any,
  // but all together no more than up to tpot_target seconds; when someone has waited longer than ttft_target, that is
  // the only bound. (Where decoding alone takes most of tpot_target, prompts may add half of its time.)
  double tpot_target = 0.05, ttft_target = 1.0;
};

// Tokens [first, first + rows) of one sequence; with logits if they end what is known of it.
struct Chunk {
  SequenceId id = 0;
  int first = 0, rows = 0;
  bool wants_logits = false;
  bool operator==(const Chunk&) const = default;
};

struct StepPlan {
  std::vector<SequenceId> preempted;  // from the end of `running`: give their pages back and wait again
  std::vector<SequenceId> admitted;   // in the order of `waiting`, some left out: run from now on
  std::vector<SequenceId> loads;      // of those admitted: read `loads` pages from the store before anything else
  std::vector<Chunk> chunks;          // decoding sequences first, then prompt chunks; at most max_rows rows, of which
                                      // max_logits have logits

  void clear();
  bool operator==(const StepPlan&) const = default;
};

// One row for each decoding sequence first, so that a long prompt delays a running answer by one bounded step at most;
// then the prompts of running sequences, then of waiting ones, until the rows or the time of the step are used up.
//
// When pages run out, the sequence that comes last in `running` is preempted. A waiting one is admitted only if its
// tokens fit beside what all running ones still need for theirs, and leave every running one a page to grow into; so a
// sequence that runs alone always runs to its end, if the pool holds its longest form. One whose next page another
// sequence is about to compute waits for it (others may pass).
//
// Writes to `plan`, whose memory is used again.
void make_plan(const SchedulerState& state, const SchedulerLimits& limits, const StepCosts& costs, StepPlan& plan);

}  // namespace quire
