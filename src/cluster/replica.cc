#include "cluster/replica.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <span>
#include <utility>

namespace quire {
namespace {

CacheNeeds needs_of(const ReplicaOptions& options) { return {.page_tokens = options.page_tokens}; }

}  // namespace

SimulatedReplica::SimulatedReplica(const ReplicaOptions& options, StepSeconds seconds, PageListener listener)
    : options_(options),
      seconds_(std::move(seconds)),
      listener_(std::move(listener)),
      // The tree compares an id for each page, not its tokens.
      pool_(static_cast<uint32_t>(options.pages), 1),
      tree_(pool_) {
  state_.needs = needs_of(options);
}

void SimulatedReplica::submit(SimulatedJob job, double now) {
  assert(state_.needs.pages(job.prompt + job.answer) <= options_.pages);
  Job added;
  added.id = SequenceId{job.request};
  added.submitted = now;
  added.tokens = job.prompt;
  added.job = std::move(job);
  waiting_.push_back(std::move(added));
}

// ---- what the scheduler sees ----

uint64_t SimulatedReplica::next_page(const Job& job) const {
  const size_t page = job.nodes.size();
  const auto full = static_cast<size_t>(job.job.prompt / options_.page_tokens);
  return shares(job) && page < full ? chain(job.key, std::span(job.job.pages).subspan(page, 1)).low : 0;
}

SequenceView SimulatedReplica::view(const Job& job) const {
  return {.id = job.id,
          .arrival = job.job.request,
          .tokens = job.tokens,
          .computed = job.computed,
          .decodes = job.decodes,
          .next_page = next_page(job)};
}

// The pages of the tree that the job begins with. Its last token is computed in any case.
void SimulatedReplica::look_up(Job& job) {
  if (!shares(job)) return;
  if (job.looked_up_at != evictions_) {
    job.nodes.clear();
    job.key = {};
    job.looked_up_at = evictions_;
  }
  const auto limit = static_cast<size_t>((job.tokens - 1) / options_.page_tokens);
  while (job.nodes.size() < limit) {
    const auto content = std::span(job.job.pages).subspan(job.nodes.size(), 1);
    const PageKey key = chain(job.key, content);
    const PrefixTree::Node node = tree_.find(key, content);
    if (node == PrefixTree::kNone) return;
    job.nodes.push_back(node);
    job.key = key;
  }
}

void SimulatedReplica::observe(double now) {
  state_.free_units = static_cast<int>(pool_.free_units() + pool_.idle_units());
  state_.running.clear();
  state_.waiting.clear();
  // What preempting a job would free matters only if units may run out.
  const bool scarce = state_.free_units < 2 * static_cast<int>(running_.size()) + 1;
  for (const Job& job : running_) {
    SequenceView& v = state_.running.emplace_back(view(job));
    v.pages = v.units = static_cast<int>(job.units.size());
    if (!scarce) continue;
    v.own_units =
        static_cast<int>(std::ranges::count_if(job.units, [&](const UnitId unit) { return pool_.users(unit) == 1; }));
  }
  sort_running(state_.running);
  for (Job& job : waiting_) {
    if (state_.waiting.size() == kMostCandidates) break;
    look_up(job);
    SequenceView& v = state_.waiting.emplace_back(view(job));
    v.pages = v.units = static_cast<int>(job.nodes.size());
    v.computed = v.pages * options_.page_tokens;
    v.idle_units = static_cast<int>(
        std::ranges::count_if(job.nodes, [&](const auto node) { return pool_.idle(tree_.unit(node, 0)); }));
    v.waited = now - job.submitted;
    if (job.job.received > 0) {
      v.loads = true;
      v.load_units = state_.needs.pages(job.job.received);
    }
  }
}

// ---- what the plan does to jobs ----

SimulatedReplica::Jobs::iterator SimulatedReplica::find(Jobs& jobs, SequenceId id) {
  return std::ranges::find(jobs, id, &Job::id);
}

void SimulatedReplica::admit(Jobs::iterator job) {
  look_up(*job);
  for (const PrefixTree::Node node : job->nodes) {
    const UnitId unit = tree_.unit(node, 0);
    pool_.retain(unit);
    job->units.push_back(unit);
  }
  if (!job->nodes.empty()) tree_.touch(job->nodes.back());
  job->computed = static_cast<int>(job->nodes.size()) * options_.page_tokens;
  running_.splice(running_.end(), waiting_, job);
  if (job->job.received > 0) {
    grow(*job, job->job.received);
    job->computed = job->job.received;
  }
}

void SimulatedReplica::preempt(Jobs::iterator job) {
  ++preemptions_;
  release(*job);
  job->job.received = 0;  // what it had is gone
  const auto later = [&](const Job& other) { return other.id > job->id; };
  waiting_.splice(std::ranges::find_if(waiting_, later), running_, job);
}

void SimulatedReplica::release(Job& job) {
  if (!job.nodes.empty()) tree_.touch(job.nodes.back());
  for (const UnitId unit : job.units) pool_.release(unit);
  job.units.clear();
  job.nodes.clear();
  job.key = {};
  job.computed = 0;
  job.decodes = false;
}

void SimulatedReplica::grow(Job& job, int rows) {
  const auto pages = static_cast<size_t>(state_.needs.pages(job.computed + rows));
  while (job.units.size() < pages) {
    while (pool_.free_units() == 0) {
      const bool evicted = tree_.evict(
          [&](PageKey key, int, UnitId) {
            ++evictions_;
            if (listener_) listener_(key, false);
          },
          [](PageKey, int) {});
      assert(evicted && "the scheduler gave away more pages than there are");
      if (!evicted) return;
    }
    job.units.push_back(*pool_.allocate());
  }
}

// Puts its finished pages into the prefix tree. Where the tree has the same page already, the job goes on with that one.
void SimulatedReplica::keep_finished(Job& job) {
  if (!shares(job)) return;
  const auto finished = static_cast<size_t>(job.computed / options_.page_tokens);
  while (job.nodes.size() < std::min(finished, job.job.pages.size())) {
    const size_t page = job.nodes.size();
    const auto content = std::span(job.job.pages).subspan(page, 1);
    const PageKey key = chain(job.key, content);
    PrefixTree::Node node = tree_.find(key, content);
    if (node == PrefixTree::kNone) {
      node = tree_.insert(page == 0 ? PrefixTree::kNone : job.nodes.back(), PageKey{}, key, content,
                          std::span(job.units).subspan(page, 1));
      if (listener_) listener_(key, true);
    } else if (tree_.unit(node, 0) != job.units[page]) {
      pool_.release(job.units[page]);
      job.units[page] = tree_.unit(node, 0);
      pool_.retain(job.units[page]);
    }
    job.nodes.push_back(node);
    job.key = key;
  }
}

// ---- steps ----

std::optional<double> SimulatedReplica::begin_step(double now) {
  assert(!stepping_);
  do {
    observe(now);
    make_plan(state_, options_.limits, costs_.costs(), plan_);
    for (const SequenceId id : plan_.preempted) preempt(find(running_, id));
    for (const SequenceId id : plan_.admitted) admit(find(waiting_, id));
    // Without rows, received pages have come, or room was made: there is more to plan.
  } while (plan_.chunks.empty() && (!plan_.preempted.empty() || !plan_.admitted.empty()));
  if (plan_.chunks.empty()) return std::nullopt;
  load_.spans.clear();
  load_.logits = 0;
  work_ = {};
  for (Chunk& chunk : plan_.chunks) {
    Job& job = *find(running_, chunk.id);
    chunk.first = job.computed;
    chunk.wants_logits = chunk.first + chunk.rows == job.tokens;
    grow(job, chunk.rows);
    load_.spans.push_back({.sequences = 1, .rows = chunk.rows, .position = chunk.first});
    load_.logits += chunk.wants_logits;
    work_.add(chunk.rows, chunk.first);
  }
  stepping_ = true;
  return seconds_(load_);
}

void SimulatedReplica::end_step(double seconds, std::vector<JobProgress>& progress) {
  assert(stepping_);
  stepping_ = false;
  ++steps_;
  busy_ += seconds;
  costs_.learn(work_, seconds);
  for (const Chunk& chunk : plan_.chunks) {
    const auto job = find(running_, chunk.id);
    if (!job->started) {
      job->started = true;
      progress.push_back({job->job.request, JobProgress::Kind::kStarted, chunk.first});
    }
    job->computed += chunk.rows;
    keep_finished(*job);
    if (!chunk.wants_logits) continue;
    job->decodes = true;
    ++job->tokens;
    if (job->tokens == job->job.prompt + 1) progress.push_back({job->job.request, JobProgress::Kind::kFirstToken, 0});
    if (job->tokens < job->job.prompt + job->job.answer) continue;
    progress.push_back({job->job.request, JobProgress::Kind::kFinished, 0});
    release(*job);
    running_.erase(job);
  }
}

}  // namespace quire
