// Plans the next step: a pure function from the state of all sequences to a plan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/step_costs.h"

namespace quire {

enum class SequenceId : uint64_t {};

// A sequence as the scheduler sees it.
struct SequenceView {
  SequenceId id{};
  uint64_t arrival = 0;      // order of arrival of its request: lower came first
  int priority = 0;          // among the tenant's own: lower runs first and is preempted last
  int tenant = 0;            // its number
  int tenant_priority = 0;   // among tenants: lower runs first and is preempted last
  int tokens = 0;            // prompt and answer so far
  int computed = 0;          // tokens with keys and values in its pages; < tokens. Waiting: in the prefix cache
  int pages = 0;             // pages of its tokens. Waiting: full pages of the cached prefix
  int units = 0;             // units it holds. Waiting: of the cached prefix
  int own_units = 0;         // units that no other sequence uses: what preempting it frees
  bool shared_tail = false;  // its next token goes to a shared page, whose units must be copied first
  bool loading = false;      // its units are being read from the page store; it gets no rows
  bool all_logits = false;   // every row of its prompt wants logits
  bool decodes = false;      // all its tokens were computed once, but for those that it has generated since
  int drafts = 0;            // decoding: drafted tokens, which get rows if there is room
  uint64_t next_page = 0;    // identifies the content of the next page its prompt fills; 0: nothing to share

  // Only for waiting sequences.
  int idle_units = 0;   // units among `units` that count as free until it is admitted
  bool loads = false;   // further pages are faster to read from the page store than to compute
  int load_units = 0;   // units that these pages take
  double waited = 0;    // seconds since submission
  bool awaits = false;  // the page store is being asked for its prefix: it is not admitted yet

  bool operator==(const SequenceView&) const = default;
};

// How much KV cache tokens need: a page of tokens takes one unit in each group of layers. After each step, a group with
// a window releases the units that the window has passed.
struct CacheNeeds {
  int page_tokens = 16;
  int groups = 1;
  std::vector<int> window_pages;  // pages that the window spans, for each group with a window

  int pages(int tokens) const { return (tokens + page_tokens - 1) / page_tokens; }
  // What a sequence of so many tokens holds, at most, while it grows a page at a time.
  int units(int tokens) const {
    const int all = pages(tokens);
    int units = all * (groups - static_cast<int>(window_pages.size()));
    for (const int most : window_pages) units += std::min(all, most);
    return units;
  }
};

// Waiting sequences that a step considers: one step rarely admits more, and each look-up in the prefix cache costs time.
inline constexpr size_t kMostCandidates = 16;

struct SchedulerState {
  std::vector<SequenceView> running;  // in the order of sort_running(); all hold units
  std::vector<SequenceView> waiting;  // in the order of admission (order_waiting); at most kMostCandidates
  int free_units = 0;                 // including idle units of the prefix cache
  CacheNeeds needs;
};

// Puts the oldest sequence first, so that it is never preempted and finishes. Sorts the others by their tenants'
// priority, then arrival; each tenant's sequences fill the places that they have then by their own priority. So no tenant
// can push another's back.
void sort_running(std::vector<SequenceView>& running);

struct SchedulerLimits {
  int max_rows = 512;  // per step; at least max_running
  int max_running = 64;
  int max_logits = 64;  // rows with logits per step, drafted ones included; at least max_running
  // false: a prompt is computed in one step, even if it exceeds max_rows; except prompts that want all logits.
  bool chunked_prefill = true;
  bool static_batches = false;  // admit only when nothing runs: the classic baseline
  // In seconds. While answers are generated, each unfinished prompt may lengthen a step by the time that decoding alone
  // takes, all of them together up to tpot_target. Once a sequence has waited longer than ttft_target, tpot_target is
  // the only limit. If decoding alone takes most of tpot_target, prompts may add half of that time.
  double tpot_target = 0.05, ttft_target = 1.0;
};

// Tokens [first, first + rows) of one sequence, and after them its first `drafts` drafted tokens. It wants logits if they
// are its last known tokens.
struct Chunk {
  SequenceId id{};
  int first = 0, rows = 0, drafts = 0;
  bool wants_logits = false;
  bool decodes = false;  // the sequence was decoding
  bool operator==(const Chunk&) const = default;
};

struct StepPlan {
  std::vector<SequenceId> preempted;  // from the end of `running`: release their units; they wait again
  std::vector<SequenceId> admitted;   // in the order of `waiting`, some left out: run from now on
  std::vector<SequenceId> loads;      // admitted sequences that first read pages from the store
  std::vector<Chunk> chunks;          // decoding sequences, then prompts; at most max_rows rows and max_logits logits

  void clear();
  bool operator==(const StepPlan&) const = default;
};

// Each decoding sequence gets its rows first (one, unless a constraint has forced further tokens), so a long prompt delays
// a running answer by one bounded step at most. Drafts come next: they preempt nothing. The remaining rows and time of
// the step go to prompts of running sequences, then to waiting ones.
//
// When units run out, the last of `running` is preempted. A waiting sequence is admitted only if, after all running
// ones have computed their tokens, its own still fit and each has one page to grow into. So a sequence that runs alone
// finishes, provided that the pool holds its longest form: CacheNeeds::units(), or without chunked prefill a unit of
// each group for every page. A sequence whose next page is about to be computed by
// another one waits for that page, and one that awaits the page store waits for the answer; later ones may overtake it.
//
// Writes to `plan`, reusing its memory.
void make_plan(const SchedulerState& state, const SchedulerLimits& limits, const StepCosts& costs, StepPlan& plan);

}  // namespace quire
