// The scheduler against its promises, over random histories and without a model.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "engine/scheduler.h"

namespace quire {
namespace {

struct Simulated {
  SequenceView view;
  int target = 0;  // tokens when it ends
  int waited = 0;
};

// Runs the plans as the engine does, with page counts instead of pages.
class Simulation {
 public:
  Simulation(unsigned seed, SchedulerLimits limits, int pages)
      : random_(seed), limits_(limits), pages_(pages), free_(pages) {}

  void step() {
    arrive();
    cancel();
    SchedulerState state{{}, {}, free_, 16};
    for (const auto& s : running_) state.running.push_back(s.view);
    for (const auto& s : waiting_) state.waiting.push_back(s.view);
    const StepPlan p = plan(state, limits_);
    ASSERT_EQ(p, plan(state, limits_)) << "not a function of its state";
    check(state, p);
    if (::testing::Test::HasFatalFailure()) return;
    apply(p);
    ASSERT_GE(free_, 0);
    int held = 0;
    for (const auto& s : running_) held += s.view.pages;
    ASSERT_EQ(held + free_, pages_) << "pages leaked";
  }

  size_t finished() const { return finished_; }
  size_t alive() const { return running_.size() + waiting_.size(); }
  void stop_arrivals() { arrivals_ = false; }

 private:
  void arrive() {
    if (!arrivals_ || random_() % 3 != 0 || waiting_.size() > 40) return;
    Simulated s;
    s.view.id = ++last_id_;
    const int most = pages_ * 16;
    s.view.tokens =
        1 + static_cast<int>(random_() % static_cast<unsigned>(random_() % 5 == 0 ? most - 1 : std::min(most - 1, 60)));
    s.target = std::min(most, s.view.tokens + 1 + static_cast<int>(random_() % 50));
    waiting_.push_back(s);
  }

  void cancel() {
    if (random_() % 50 != 0 || running_.empty()) return;
    const size_t i = random_() % running_.size();
    free_ += running_[i].view.pages;
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
  }

  void check(const SchedulerState& state, const StepPlan& p) {
    int rows = 0, decoding = 0;
    std::set<SequenceId> planned;
    for (const Chunk& c : p.chunks) {
      ASSERT_TRUE(planned.insert(c.id).second) << "a sequence twice";
      ASSERT_GT(c.rows, 0);
      rows += c.rows;
      const auto find = [&](const auto& list) {
        return std::find_if(list.begin(), list.end(), [&](const auto& v) { return v.id == c.id; });
      };
      auto s = find(state.running);
      if (s == state.running.end()) {
        s = find(state.waiting);
        ASSERT_NE(s, state.waiting.end());
        ASSERT_NE(std::find(p.admitted.begin(), p.admitted.end(), c.id), p.admitted.end());
      }
      ASSERT_EQ(c.first, s->computed);
      ASSERT_LE(c.first + c.rows, s->tokens);
      ASSERT_EQ(c.wants_logits, c.first + c.rows == s->tokens);
      ASSERT_EQ(std::find(p.preempted.begin(), p.preempted.end(), c.id), p.preempted.end()) << "computed and preempted";
      if (!limits_.chunked_prefill) {
        ASSERT_TRUE(c.wants_logits);
      }
    }
    if (limits_.chunked_prefill) {
      ASSERT_LE(rows, limits_.max_rows);
    }
    ASSERT_LE(state.running.size() - p.preempted.size() + p.admitted.size(), static_cast<size_t>(limits_.max_running));
    // First come first: what is preempted are the last, what is admitted are the first.
    for (size_t i = 0; i < p.preempted.size(); ++i)
      ASSERT_EQ(p.preempted[i], state.running[state.running.size() - 1 - i].id);
    for (size_t i = 0; i < p.admitted.size(); ++i) ASSERT_EQ(p.admitted[i], state.waiting[i].id);
    // A decoding sequence that stays gets its row, if the rows suffice for all.
    for (const SequenceView& s : state.running) decoding += s.tokens - s.computed == 1;
    if (decoding <= limits_.max_rows) {
      for (size_t i = 0; i + p.preempted.size() < state.running.size(); ++i) {
        const SequenceView& s = state.running[i];
        if (s.tokens - s.computed == 1) {
          ASSERT_TRUE(planned.contains(s.id)) << "a running answer stalls";
        }
      }
    }
    // Something happens whenever there is something to do.
    if (!state.running.empty() || !state.waiting.empty()) {
      ASSERT_TRUE(!p.chunks.empty() || !p.preempted.empty()) << "stuck";
    }
  }

  void apply(const StepPlan& p) {
    for (const SequenceId id : p.preempted) {
      ASSERT_EQ(running_.back().view.id, id);
      Simulated s = running_.back();
      running_.pop_back();
      free_ += s.view.pages;
      s.view.pages = s.view.own_pages = s.view.computed = 0;
      waiting_.push_front(s);
    }
    for (size_t i = 0; i < p.admitted.size(); ++i) {
      running_.push_back(waiting_.front());
      waiting_.pop_front();
    }
    for (const Chunk& c : p.chunks) {
      Simulated& s = *std::find_if(running_.begin(), running_.end(), [&](const auto& r) { return r.view.id == c.id; });
      s.view.computed += c.rows;
      const int needed = (s.view.computed + 15) / 16;
      if (needed > s.view.pages) {
        free_ -= needed - s.view.pages;
        s.view.pages = s.view.own_pages = needed;
      }
      if (c.wants_logits) ++s.view.tokens;
    }
    for (size_t i = 0; i < running_.size();) {
      if (running_[i].view.tokens >= running_[i].target) {
        free_ += running_[i].view.pages;
        running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
        ++finished_;
      } else {
        ++i;
      }
    }
  }

  std::mt19937 random_;
  SchedulerLimits limits_;
  int pages_, free_;
  bool arrivals_ = true;
  SequenceId last_id_ = 0;
  size_t finished_ = 0;
  std::vector<Simulated> running_;
  std::deque<Simulated> waiting_;
};

TEST(Scheduler, KeepsItsPromisesOverRandomHistories) {
  std::mt19937 random(1);
  for (unsigned seed = 0; seed < 250; ++seed) {
    const SchedulerLimits limits{static_cast<int>(1 + random() % (seed % 2 ? 8 : 200)),
                                 static_cast<int>(1 + random() % 20), seed % 4 != 0};
    const int pages = static_cast<int>(2 + random() % (seed % 3 ? 20 : 200));
    Simulation s(seed, limits, pages);
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " rows " << limits.max_rows << " sequences "
                                      << limits.max_running << " pages " << pages);
    for (int i = 0; i < 400; ++i) {
      s.step();
      ASSERT_FALSE(HasFatalFailure());
    }
    // Nothing starves: when no more arrive, all end.
    s.stop_arrivals();
    for (int i = 0; i < 200'000 && s.alive() > 0; ++i) {
      s.step();
      ASSERT_FALSE(HasFatalFailure());
    }
    EXPECT_EQ(s.alive(), 0u);
  }
}

}  // namespace
}  // namespace quire
