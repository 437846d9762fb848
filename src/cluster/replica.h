// A replica of the server whose steps take time but compute nothing: the engine's scheduler, its pool of pages and its prefix
// cache are the real ones.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "engine/scheduler.h"
#include "engine/step_costs.h"
#include "kv/prefix_tree.h"
#include "kv/unit_pool.h"
#include "plan/serving.h"

namespace quire {

struct ReplicaOptions {
  SchedulerLimits limits;
  int page_tokens = 16;
  int pages = 1;  // of the KV cache
  bool prefix_cache = true;
};

// A request, or what another replica left of it to do.
struct SimulatedJob {
  size_t request = 0;  // its number, in the order of arrival
  int prompt = 1;      // tokens, at least 1
  int answer = 1;      // likewise
  // Tokens of the prompt whose pages another replica has sent: they need room, and no computing. Less than `prompt`.
  int received = 0;
  std::vector<TokenId> pages;  // page_contents()
};

struct JobProgress {
  enum class Kind { kStarted, kFirstToken, kFinished };
  size_t request = 0;
  Kind kind = Kind::kStarted;
  int cached_tokens = 0;  // kStarted: of the prompt
};

// Told of each page that the prefix cache takes or drops: what KV events tell a router.
using PageListener = std::function<void(PageKey key, bool held)>;

class SimulatedReplica {
 public:
  // seconds: of a step. A request of the largest size must fit the cache.
  SimulatedReplica(const ReplicaOptions& options, StepSeconds seconds, PageListener listener);

  void submit(SimulatedJob job, double now);
  size_t requests() const { return running_.size() + waiting_.size(); }
  bool stepping() const { return stepping_; }

  // Begins a step and returns the seconds that it takes if nothing slows it down; nothing if there is nothing to do. Not
  // while one is under way.
  std::optional<double> begin_step(double now);
  // The step has ended after so many seconds: what that means for requests is added to `progress`.
  void end_step(double seconds, std::vector<JobProgress>& progress);

  double busy_seconds() const { return busy_; }
  uint64_t steps() const { return steps_; }
  uint64_t preemptions() const { return preemptions_; }

 private:
  struct Job {
    SimulatedJob job;
    SequenceId id{};
    double submitted = 0;
    int tokens = 0, computed = 0;  // as in SequenceView
    bool decodes = false, started = false;
    std::vector<UnitId> units;
    // The pages in the prefix tree that it begins with: found while it waits, its own while it runs.
    std::vector<PrefixTree::Node> nodes;
    PageKey key;                // of the last of them
    uint64_t looked_up_at = 0;  // evictions until then
  };
  using Jobs = std::list<Job>;

  void observe(double now);
  SequenceView view(const Job& job) const;
  void look_up(Job& job);
  void admit(Jobs::iterator job);
  void preempt(Jobs::iterator job);
  void grow(Job& job, int rows);
  void keep_finished(Job& job);
  void release(Job& job);
  Jobs::iterator find(Jobs& jobs, SequenceId id);
  uint64_t next_page(const Job& job) const;
  bool shares(const Job& job) const { return options_.prefix_cache && job.job.received == 0; }

  const ReplicaOptions options_;
  const StepSeconds seconds_;
  const PageListener listener_;
  UnitPool pool_;
  PrefixTree tree_;
  Jobs running_, waiting_;  // waiting_: by arrival
  SchedulerState state_;
  StepPlan plan_;
  StepLoad load_;
  StepCostModel costs_;
  StepWork work_;  // of the step under way
  bool stepping_ = false;
  uint64_t evictions_ = 0, steps_ = 0, preemptions_ = 0;
  double busy_ = 0;
};

}  // namespace quire
