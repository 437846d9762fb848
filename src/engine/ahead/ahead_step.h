// A step of decoding that is launched while the one before it runs: its tokens are those that the device has drawn or found, which
// the host learns later. So the device need not wait for the host between two steps. The idea is vLLM's asynchronous scheduling
// (vllm/v1/core/sched/async_scheduler.py).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cache/page_cache.h"
#include "engine/roster.h"
#include "engine/scheduler.h"
#include "engine/step/orders.h"
#include "engine/step_builder.h"

namespace quire {

// Used by the engine's thread alone.
class AheadStep {
 public:
  // All must outlive it.
  AheadStep(Roster& roster, PageCache& cache, Orders& orders, const StepBuilder& builder)
      : roster_(roster), cache_(cache), orders_(orders), builder_(builder) {}

  // While the pass of `step` runs: launches the next one, if it is known but for its tokens. Then every running sequence gets one
  // token of its own from `step`, which nothing but its pick decides, and nothing but that token decides about its next pick.
  // Sequences that end with this token because of its number have no row in the next pass. Others may end with it, too: then their
  // row was for nothing.
  void launch(const EngineStep& step);
  // Whether a pass has been launched and not yet been taken.
  bool launched() const { return launched_; }
  // Fills plan and step with the chunks and rows of the launched pass whose sequences still run. Returns false if there are none.
  // Either way its pass is now that of Orders::finish_ahead().
  bool take(StepPlan& plan, EngineStep& step);
  // The pass that was taken has ended.
  void end() { passes_[1 - next_].requests.clear(); }

 private:
  struct Pass {
    ForwardInput input;
    // Of its sequences, also of those that end while it runs: they keep their adapters.
    std::vector<std::shared_ptr<const RequestState>> requests;
  };
  const Pick* pick_of(const EngineStep& step, size_t sample) const;
  bool build(const EngineStep& step, Pass& pass);

  using RunningSequence = std::pair<SequenceId, Sequence*>;

  Roster& roster_;
  PageCache& cache_;
  Orders& orders_;
  const StepBuilder& builder_;
  bool launched_ = false;
  std::array<Pass, 2> passes_;          // the one that is computed stays as it is while the next one is made
  std::vector<RunningSequence> by_id_;  // reused
  size_t next_ = 0;                     // the pass to be launched, or to be taken
};

}  // namespace quire
