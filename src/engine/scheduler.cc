#include "engine/scheduler.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

namespace quire {
namespace {

constexpr int kSmallestChunk = 16;  // prompt rows allowed in every step, so prompts always make progress
constexpr int kTileRows = 8;        // rows of a step that share a decoded block of weights; fewer cost as much

// Free units needed to compute `rows` more tokens in one step.
int units_to_grow(const SequenceView& s, int rows, const CacheNeeds& needs) {
  return (std::max(0, needs.pages(s.computed + rows) - s.pages) + (s.shared_tail ? 1 : 0)) * needs.groups;
}

// Free units needed to compute the sequence's known tokens, a page at a time.
int units_to_finish(const SequenceView& s, const CacheNeeds& needs) {
  return std::max(0, needs.units(s.tokens) - s.units) + (s.shared_tail ? needs.groups : 0);
}

class Planner {
 public:
  Planner(const SchedulerState& state, const SchedulerLimits& limits, const StepCosts& costs, StepPlan& plan)
      : state_(state),
        limits_(limits),
        costs_(costs),
        plan_(plan),
        running_(state.running.size()),
        free_(state.free_units),
        rows_(limits.max_rows),
        extra_logits_(std::max(0, limits.max_logits - limits.max_running)) {}

  void make() {
    decode();
    draft();
    set_time_for_prompts();
    prompts();
    if (plan_.preempted.empty()) admit();
    if (plan_.chunks.empty() && plan_.preempted.empty() && plan_.admitted.empty()) make_room();
  }

 private:
  int grow(const SequenceView& s, int rows) const { return units_to_grow(s, rows, state_.needs); }
  int finish(const SequenceView& s) const { return units_to_finish(s, state_.needs); }
  // So that a sequence can grow into the next page.
  int page() const { return state_.needs.groups; }

  void take(const SequenceView& s, int rows) {
    free_ -= grow(s, rows);
    rows_ -= rows;
    work_.add(rows, s.computed);
    plan_.chunks.push_back({.id = s.id,
                            .first = s.computed,
                            .rows = rows,
                            .wants_logits = s.computed + rows == s.tokens,
                            .decodes = s.decodes});
  }

  void preempt_last() {
    const SequenceView& last = state_.running[--running_];
    free_ += last.own_units;
    plan_.preempted.push_back(last.id);
  }

  // A sequence without units for its rows preempts from the end.
  void decode() {
    for (size_t i = 0; i < running_ && rows_ > 0; ++i) {
      const SequenceView& s = state_.running[i];
      if (!s.decodes || s.loading) continue;
      const int rows = std::min({s.tokens - s.computed, kSmallestChunk, rows_});
      while (free_ < grow(s, rows) && running_ > i + 1) preempt_last();
      if (free_ < grow(s, rows)) {  // it is the last one itself
        preempt_last();
        return;
      }
      take(s, rows);
    }
  }

  void draft() {
    size_t next = 0;  // index in state_.running; chunks are in its order
    for (Chunk& chunk : plan_.chunks) {
      while (state_.running[next].id != chunk.id) ++next;
      const SequenceView& s = state_.running[next];
      if (!chunk.wants_logits) continue;
      const auto more = [&](int drafts) { return grow(s, chunk.rows + drafts) - grow(s, chunk.rows); };
      int drafts = std::min({s.drafts, rows_, extra_logits_});
      while (drafts > 0 && more(drafts) > free_) --drafts;
      if (drafts <= 0) continue;
      free_ -= more(drafts);
      rows_ -= drafts;
      extra_logits_ -= drafts;
      work_.add(drafts, chunk.first + chunk.rows);
      chunk.drafts = drafts;
    }
  }

  void set_time_for_prompts() {
    if (plan_.chunks.empty() || !limits_.chunked_prefill) return;
    const double decoding = costs_.seconds(work_), most = std::max(limits_.tpot_target, 1.5 * decoding);
    const auto pending =
        state_.waiting.size() + static_cast<size_t>(std::count_if(state_.running.begin(), state_.running.end(),
                                                                  [](const SequenceView& s) { return !s.decodes; }));
    const bool late = std::any_of(state_.waiting.begin(), state_.waiting.end(),
                                  [&](const SequenceView& s) { return s.waited > limits_.ttft_target; });
    time_ = (late ? most : std::min(most, (1 + static_cast<double>(pending)) * decoding)) - decoding;
  }

  // Rows of the prompt that fit into the remaining rows, units, logits and time; 0: not now.
  int chunk_rows(const SequenceView& s) const {
    const int left = s.tokens - s.computed;
    if (!limits_.chunked_prefill && !s.all_logits) return rows_ > 0 && grow(s, left) <= free_ ? left : 0;
    int in_time = costs_.rows_within(time_, s.computed, work_.rows);
    if (prompts_ == 0) in_time = std::max(in_time, kSmallestChunk);
    // All rows of the step together fill their tiles.
    in_time = std::max(0, (work_.rows + in_time) / kTileRows * kTileRows - work_.rows);
    int count = std::min({left, rows_, in_time});
    if (s.all_logits) count = std::min(count, 1 + extra_logits_);
    if (page() == 0) return count;
    const int usable = free_ - (s.shared_tail ? page() : 0);
    return usable < 0 ? 0 : std::min(count, (s.pages + usable / page()) * state_.needs.page_tokens - s.computed);
  }

  void take_prompt(const SequenceView& s, int rows) {
    const double before = costs_.seconds(work_);
    take(s, rows);
    time_ -= costs_.seconds(work_) - before;
    if (s.all_logits) extra_logits_ -= rows - 1;
    ++prompts_;
  }

  void prompts() {
    for (size_t i = 0; i < running_ && rows_ > 0; ++i) {
      const SequenceView& s = state_.running[i];
      if (s.decodes || s.loading) continue;
      if (const int count = chunk_rows(s); count > 0) take_prompt(s, count);
    }
  }

  // Units that running sequences still need for their known tokens after this step, plus a page each to grow into.
  int promised() const {
    int units = free_ - state_.free_units;
    for (const SequenceView& s : state_.running) units += finish(s) + page();
    return units;
  }

  bool someone_computes(uint64_t page) const {
    const auto computes = [&](const SequenceView& s) { return s.next_page == page && !s.decodes; };
    return page != 0 && (std::any_of(state_.running.begin(),
                                     state_.running.begin() + static_cast<std::ptrdiff_t>(running_), computes) ||
                         std::any_of(state_.waiting.begin(), state_.waiting.end(), [&](const SequenceView& s) {
                           return computes(s) &&
                                  std::find(plan_.admitted.begin(), plan_.admitted.end(), s.id) != plan_.admitted.end();
                         }));
  }

  void admit() {
    if (limits_.static_batches && running_ > 0) return;
    int units = promised();
    for (const SequenceView& s : state_.waiting) {
      if (rows_ <= 0 || static_cast<int>(running_ + plan_.admitted.size()) >= limits_.max_running) break;
      if (s.awaits || someone_computes(s.next_page)) continue;
      const bool alone = running_ + plan_.admitted.size() == 0;
      const int needed = finish(s);
      if (needed + s.idle_units + (alone ? 0 : units + page()) > free_) break;
      free_ -= s.idle_units;
      if (s.loads) {
        free_ -= s.load_units;
        plan_.admitted.push_back(s.id);
        plan_.loads.push_back(s.id);
        units += needed - s.load_units + page();
        continue;
      }
      const int count = chunk_rows(s);
      if (count <= 0) {
        free_ += s.idle_units;
        break;
      }
      plan_.admitted.push_back(s.id);
      units += needed - grow(s, count) + page();
      take_prompt(s, count);
    }
  }

  // Nothing can run: prompts hold units that others need, and no sequence decodes. Preempt the last one.
  void make_room() {
    const bool progress =
        std::any_of(state_.running.begin(), state_.running.end(), [](const SequenceView& s) { return s.loading; });
    if (!progress && running_ > 1) preempt_last();
  }

  const SchedulerState& state_;
  const SchedulerLimits& limits_;
  const StepCosts& costs_;
  StepPlan& plan_;
  size_t running_;  // the first running_ of state_.running have not been preempted
  int free_, rows_, prompts_ = 0;
  int extra_logits_;  // rows of logits left over one for each sequence that may run
  StepWork work_;
  double time_ = std::numeric_limits<double>::infinity();  // seconds left for prompts
};

// Sorts each tenant's sequences by priority, in the places that the tenant has. Without priorities they are sorted.
void order_within_tenants(std::span<SequenceView> sequences) {
  const auto other = [&](const SequenceView& s) { return s.priority != sequences[0].priority; };
  if (std::none_of(sequences.begin(), sequences.end(), other)) return;
  const auto rank = [](const SequenceView& s) { return std::tuple{s.priority, s.arrival, s.id}; };
  for (size_t place = 0; place < sequences.size(); ++place) {
    size_t best = place;
    for (size_t i = place + 1; i < sequences.size(); ++i) {
      const SequenceView &s = sequences[i], &b = sequences[best];
      if (s.tenant == b.tenant && s.tenant_priority == b.tenant_priority && rank(s) < rank(b)) best = i;
    }
    std::swap(sequences[place], sequences[best]);
  }
}

}  // namespace

void sort_running(std::vector<SequenceView>& running) {
  if (running.empty()) return;
  const auto by_rank = [](const SequenceView& a, const SequenceView& b) {
    return std::tuple{a.tenant_priority, a.arrival, a.id} < std::tuple{b.tenant_priority, b.arrival, b.id};
  };
  std::sort(running.begin(), running.end(), by_rank);
  const auto oldest =
      std::min_element(running.begin(), running.end(), [](const SequenceView& a, const SequenceView& b) {
        return std::tuple{a.arrival, a.id} < std::tuple{b.arrival, b.id};
      });
  std::rotate(running.begin(), oldest, oldest + 1);
  order_within_tenants(std::span(running).subspan(1));
}

void StepPlan::clear() {
  preempted.clear();
  admitted.clear();
  loads.clear();
  chunks.clear();
}

void make_plan(const SchedulerState& state, const SchedulerLimits& limits, const StepCosts& costs, StepPlan& plan) {
  plan.clear();
  Planner(state, limits, costs, plan).make();
}

}  // namespace quire
