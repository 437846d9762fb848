#include "engine/watch/engine_watch.h"

#include <algorithm>
#include <new>
#include <variant>

#include "engine/watch/pool_map.h"
#include "engine/watch/prefix_shape.h"
#include "model/tensors.h"

namespace quire {
namespace {

constexpr double kPause = 200;  // between snapshots, at least so many times what the last one took

}  // namespace

EngineWatch::EngineWatch(const LoadedModel& model) : step_target_(model.options.tpot_target) {
  for_each_matrix(model.target.config, model.target.weights, [&](const Slot& slot, const Linear& linear) {
    if (is_table(slot.tensor)) return;
    const double products = static_cast<double>(linear.weight.rows) * static_cast<double>(linear.weight.cols);
    if (slot.tensor == Tensor::kOutput) {
      logits_multiply_adds_ += products;
    } else if (is_expert(slot.tensor)) {
      const auto& moe = std::get<Moe>(model.target.config.layers[static_cast<size_t>(slot.layer)].ffn);
      if (slot.item < moe.routing.used) row_multiply_adds_ += products;  // all experts have the same size
    } else {
      row_multiply_adds_ += products;
    }
  });
}

void EngineWatch::end_step(Clock::time_point began, double seconds, int rows, size_t logits, double bytes) {
  history_.end_step({.began = since_start(began),
                     .duration = seconds,
                     .bytes = bytes,
                     .multiply_adds = row_multiply_adds_ * rows + logits_multiply_adds_ * static_cast<double>(logits)});
}

SequenceSnapshot EngineWatch::describe(const Sequence& s, bool runs) const {
  using Phase = SequenceSnapshot::Phase;
  const RequestState& r = *s.request;
  SequenceSnapshot d;
  d.id = static_cast<uint64_t>(s.id);
  d.request = static_cast<uint64_t>(r.id);
  d.choice = s.choice;
  d.phase = !runs                  ? (r.begun ? Phase::kPreempted : Phase::kWaiting)
            : s.cached.load.active ? Phase::kLoading
            : s.decodes            ? Phase::kDecode
                                   : Phase::kPrefill;
  d.prompt_tokens = r.prompt_tokens;
  d.cached_tokens = r.begun ? r.cached_tokens : 0;
  d.computed = s.computed;
  d.generated = s.generated();
  d.max_new_tokens = r.max_new_tokens;
  d.units = s.pages.held_units();
  d.drafted = s.drafted;
  d.accepted = s.accepted;
  d.submitted = since_start(r.submitted);
  if (r.begun) d.started = since_start(r.started);
  if (d.generated > 0) d.first_token = since_start(s.first_token);
  return d;
}

void EngineWatch::take(const Roster& roster, const SharedPages& shared, EngineSnapshot& to) const {
  to.running = static_cast<int>(roster.running().size());
  to.waiting = static_cast<int>(roster.waiting().size());
  to.step_target = step_target_;
  draw_units(shared.pool(), to.pool);
  to.sequences.clear();
  const auto list = [&](const Sequences& sequences, bool runs) {
    for (const Sequence& s : sequences) {
      if (to.sequences.size() >= EngineSnapshot::kMostSequences) break;
      if (s.ended()) continue;
      draw_owner(s.pages, static_cast<uint16_t>(to.sequences.size()), to.pool);
      to.sequences.push_back(describe(s, runs));
    }
  };
  list(roster.running(), true);
  list(roster.waiting(), false);
  draw_prefixes(shared.tree(), shared.pool(), shared.groups(), to.prefixes);
  history_.copy_to(to);
}

void EngineWatch::publish(const Roster& roster, const SharedPages& shared, const EngineStats& stats) {
  if (!asked()) return;
  asked_.store(false,
               std::memory_order_relaxed);  // also if it is too early, or an idle engine would look again at once
  const auto begin = Clock::now();
  if (begin < next_) return;
  EngineSnapshot& to = buffer_.back();
  try {
    take(roster, shared, to);
  } catch (const std::bad_alloc&) {
    return;  // the readers keep the last one
  }
  to.pool.host_pages = stats.store_host_pages;
  to.pool.disk_pages = stats.store_disk_pages;
  to.number = ++taken_;
  to.time = since_start(begin);
  buffer_.publish();
  const double cost = seconds(Clock::now() - begin);
  next_ = begin + std::chrono::duration_cast<Clock::duration>(
                      std::chrono::duration<double>(std::max(kLeastInterval, cost * kPause)));
}

}  // namespace quire
