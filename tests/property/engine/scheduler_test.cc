// Checks the promises of the scheduler over a million random steps, without a model.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "engine/fair_queue.h"
#include "engine/scheduler.h"
#include "ops/cache_layout.h"

namespace quire {
namespace {

struct Simulated {
  SequenceView view;
  int tenant = 0;
  int target = 0;  // tokens when it ends
  int shared = 0;  // tokens of its prompt that are the same for all
  int64_t came = 0;
};

struct Scenario {
  SchedulerLimits limits;
  int units = 0, tenants = 1, priorities = 1;
  int pushy = -1;            // a tenant whose requests all have the highest priority
  bool ranked = false;       // tenants have priorities: their numbers
  bool asks = false;         // some sequences await what the page store has, for some steps
  int groups = 1;            // groups of layers
  std::vector<int> windows;  // windows of the groups that have one, in tokens
  double arrivals = 0.3;     // a step
  StepCosts costs = StepCosts::line(0.005, 0.0005, 0);
};

// Executes plans as the engine does, but only counts units.
class Simulation {
 public:
  Simulation(unsigned seed, const Scenario& setup) : random_(seed), setup_(setup), free_(setup.units) {
    state_.needs.groups = setup.groups;
    for (const int window : setup.windows) state_.needs.window_pages.push_back(most_pages(window));
    while (longest_ < 16 * setup.units && units_of(longest_ + 1) <= setup.units) ++longest_;
    for (int i = 0; i < setup.tenants; ++i) shares_.enter(std::to_string(i));
  }

  void step() {
    ++now_;
    arrive();
    cancel();
    observe();
    make_plan(state_, setup_.limits, setup_.costs, plan_);
    if (now_ % 16 == 0) {
      StepPlan again;
      make_plan(state_, setup_.limits, setup_.costs, again);
      ASSERT_EQ(plan_, again) << "not a function of its state";
    }
    check();
    if (::testing::Test::HasFatalFailure()) return;
    apply();
    ASSERT_GE(free_, 0);
    int held = 0;
    for (const auto& s : running_) {
      held += s.view.units;
      ASSERT_LE(s.view.units, state_.needs.units(s.view.computed));
    }
    ASSERT_EQ(held + free_, setup_.units) << "units leaked";
  }

  size_t alive() const { return running_.size() + waiting_.size(); }
  void stop_arrivals() { arrivals_ = false; }
  int64_t longest_life() const { return longest_life_; }
  double served(int tenant) const { return served_by_[static_cast<size_t>(tenant)]; }

 private:
  // What a sequence of this length needs alone.
  int units_of(int tokens) const {
    return setup_.limits.chunked_prefill ? state_.needs.units(tokens) : state_.needs.pages(tokens) * setup_.groups;
  }
  // Units that a sequence holds between steps.
  int held_units(int pages, int computed) const {
    int units = pages * setup_.groups;
    for (const int window : setup_.windows) units -= std::min(pages, first_visible_page(window, computed));
    return units;
  }

  void arrive() {
    if (!arrivals_ || random_() % 1000 >= 1000 * setup_.arrivals) return;
    Simulated s;
    s.tenant = static_cast<int>(random_() % static_cast<unsigned>(setup_.tenants));
    const auto same =
        std::count_if(waiting_.begin(), waiting_.end(), [&](const auto& w) { return w.tenant == s.tenant; });
    if (same > 40 / setup_.tenants) return;
    s.view.arrival = ++last_id_;
    s.view.id = SequenceId{last_id_};
    s.view.priority = static_cast<int>(random_() % static_cast<unsigned>(setup_.priorities));
    if (s.tenant == setup_.pushy) s.view.priority = std::numeric_limits<int>::min();
    s.view.tenant = s.tenant;
    s.view.tenant_priority = setup_.ranked ? s.tenant : 0;
    const int most = longest_;
    s.view.tokens =
        1 + static_cast<int>(random_() % static_cast<unsigned>(random_() % 5 == 0 ? most - 1 : std::min(most - 1, 60)));
    s.target = std::min(most, s.view.tokens + 1 + static_cast<int>(random_() % 50));
    s.view.all_logits = random_() % 4 == 0;
    s.shared = !s.view.all_logits && random_() % 3 == 0 ? s.view.tokens / 2 : 0;
    s.came = now_;
    waiting_.push_back(s);
  }

  void cancel() {
    if (random_() % 50 != 0 || running_.empty()) return;
    const size_t i = random_() % running_.size();
    free_ += running_[i].view.units;
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void observe() {
    state_.free_units = free_;
    state_.running.clear();
    state_.waiting.clear();
    const auto next_page = [](const Simulated& s) {
      const int page = s.view.computed / 16;
      return (page + 1) * 16 <= s.shared ? static_cast<uint64_t>(page + 1) : 0;
    };
    for (auto& s : running_) {
      s.view.next_page = next_page(s);
      state_.running.push_back(s.view);
    }
    sort_running(state_.running);
    std::vector<Waiting> queue;
    for (const auto& s : waiting_)
      queue.push_back(
          {s.view.arrival, s.view.priority, s.tenant, static_cast<double>(s.view.tokens), s.view.tenant_priority});
    std::vector<double> served;
    shares_.copy_served(served);
    std::vector<size_t> order;
    order_waiting(queue, served, since_oldest_, 16, order);
    for (const size_t i : order) {
      SequenceView v = waiting_[i].view;
      v.next_page = next_page(waiting_[i]);
      v.waited = static_cast<double>(now_ - waiting_[i].came) * 0.01;
      v.awaits = setup_.asks && v.arrival % 3 == 0 && now_ - waiting_[i].came < 4;
      state_.waiting.push_back(v);
    }
  }

  static const SequenceView* find(const std::vector<SequenceView>& list, SequenceId id) {
    const auto at = std::find_if(list.begin(), list.end(), [&](const auto& v) { return v.id == id; });
    return at == list.end() ? nullptr : &*at;
  }
  const Simulated& simulated(SequenceId id) const {
    for (const auto* list : {&running_, &waiting_}) {
      for (const auto& s : *list) {
        if (s.view.id == id) return s;
      }
    }
    abort();
  }
  template <class List>
  static bool contains(const List& list, SequenceId id) {
    return std::find(list.begin(), list.end(), id) != list.end();
  }

  void check() {
    const SchedulerLimits& limits = setup_.limits;
    int rows = 0, logit_rows = 0, decoding = 0, prompt_chunks = 0, largest_prompt_chunk = 0;
    StepWork decodes, all;
    std::set<SequenceId> planned;
    for (const Chunk& c : plan_.chunks) {
      ASSERT_TRUE(planned.insert(c.id).second) << "a sequence twice";
      ASSERT_GT(c.rows, 0);
      rows += c.rows;
      const SequenceView* s = find(state_.running, c.id);
      const bool is_decode = s && s->decodes;
      if (!s) {
        s = find(state_.waiting, c.id);
        ASSERT_TRUE(s && contains(plan_.admitted, c.id));
      }
      ASSERT_EQ(c.first, s->computed);
      ASSERT_LE(c.first + c.rows, s->tokens);
      ASSERT_EQ(c.wants_logits, c.first + c.rows == s->tokens);
      ASSERT_FALSE(contains(plan_.preempted, c.id)) << "computed and preempted";
      if (!limits.chunked_prefill && !s->all_logits) {
        ASSERT_TRUE(c.wants_logits);
      }
      logit_rows += s->all_logits ? c.rows : c.wants_logits;
      const StepWork work{c.rows, int64_t{c.rows} * (c.first + 1) + int64_t{c.rows} * (c.rows - 1) / 2};
      all.rows += work.rows, all.attended += work.attended;
      if (is_decode) {
        ASSERT_EQ(prompt_chunks, 0) << "decoding goes first";
        decodes.rows += work.rows, decodes.attended += work.attended;
      } else {
        ++prompt_chunks;
        largest_prompt_chunk = std::max(largest_prompt_chunk, c.rows);
      }
    }
    ASSERT_LE(logit_rows, limits.max_logits);
    if (limits.chunked_prefill) {
      ASSERT_LE(rows, limits.max_rows);
      // The time of a step: once more for each prompt at most, and as long as tpot_target allows.
      if (decodes.rows > 0 && prompt_chunks > 0 && largest_prompt_chunk > 16) {
        const double alone = setup_.costs.seconds(decodes), whole = setup_.costs.seconds(all);
        ASSERT_LE(whole, std::max({limits.tpot_target, 1.5 * alone}) + 1e-9);
        const bool late = std::any_of(state_.waiting.begin(), state_.waiting.end(),
                                      [&](const auto& s) { return s.waited > limits.ttft_target; });
        if (!late) {
          double pending = static_cast<double>(state_.waiting.size());
          for (const auto& s : state_.running) pending += !s.decodes;
          ASSERT_LE(whole, (1 + pending) * alone + 1e-9);
        }
      }
    }
    const size_t left = state_.running.size() - plan_.preempted.size();
    ASSERT_LE(left + plan_.admitted.size(), static_cast<size_t>(limits.max_running));
    if (limits.static_batches && !plan_.admitted.empty()) {
      ASSERT_TRUE(state_.running.empty()) << "a batch was joined";
    }

    // The last of the running ones are preempted, and never the oldest while there are others.
    for (size_t i = 0; i < plan_.preempted.size(); ++i)
      ASSERT_EQ(plan_.preempted[i], state_.running[state_.running.size() - 1 - i].id);
    if (state_.running.size() > 1) {
      for (const SequenceView& s : state_.running) ASSERT_GE(s.arrival, state_.running[0].arrival);
    }
    // Within a tenant and priority first come, first served, unless the earlier one waits for a page or the store.
    for (const SequenceId id : plan_.admitted) {
      ASSERT_FALSE(find(state_.waiting, id)->awaits);
      const Simulated& a = simulated(id);
      for (const Simulated& b : waiting_) {
        if (b.tenant != a.tenant || b.view.priority != a.view.priority || b.view.arrival >= a.view.arrival) continue;
        const SequenceView* const shown = find(state_.waiting, b.view.id);
        ASSERT_TRUE(contains(plan_.admitted, b.view.id) || b.shared > 0 || (shown && shown->awaits)) << "overtaken";
      }
    }
    // No two sequences compute the same page.
    std::map<uint64_t, int> pages;
    for (const SequenceId id : plan_.admitted) {
      if (const uint64_t page = find(state_.waiting, id)->next_page) ++pages[page];
    }
    for (size_t i = 0; i < left; ++i) {
      const SequenceView& s = state_.running[i];
      if (!s.decodes && pages.contains(s.next_page)) ++pages[s.next_page];
    }
    for (const auto& [page, count] : pages) ASSERT_LE(count, 1) << "computed twice";
    // A decoding sequence that stays gets its row, if the rows suffice for all.
    for (const SequenceView& s : state_.running) decoding += s.decodes;
    if (decoding <= limits.max_rows) {
      for (size_t i = 0; i < left; ++i) {
        const SequenceView& s = state_.running[i];
        if (s.decodes) {
          ASSERT_TRUE(planned.contains(s.id)) << "a running answer stalls";
        }
      }
    }
    // There is progress whenever there is work.
    if (!state_.running.empty() || std::ranges::any_of(state_.waiting, [](const auto& s) { return !s.awaits; })) {
      ASSERT_TRUE(!plan_.chunks.empty() || !plan_.preempted.empty()) << "stuck";
    }
  }

  void apply() {
    const auto take = [](std::vector<Simulated>& list, SequenceId id) {
      const auto at = std::find_if(list.begin(), list.end(), [&](const auto& s) { return s.view.id == id; });
      Simulated s = *at;
      list.erase(at);
      return s;
    };
    for (const SequenceId id : plan_.preempted) {
      Simulated s = take(running_, id);
      free_ += s.view.units;
      s.view.pages = s.view.units = s.view.own_units = s.view.computed = 0;
      s.view.decodes = false;
      waiting_.push_back(s);
      std::sort(waiting_.begin(), waiting_.end(),
                [](const auto& a, const auto& b) { return a.view.arrival < b.view.arrival; });
    }
    for (const SequenceId id : plan_.admitted) {
      since_oldest_ = waiting_.front().view.id == id ? 0 : since_oldest_ + 1;
      running_.push_back(take(waiting_, id));
      shares_.charge(running_.back().tenant, running_.back().view.tokens);
    }
    int freed = 0;  // behind windows, when the step is computed
    for (const Chunk& c : plan_.chunks) {
      Simulated& s = *std::find_if(running_.begin(), running_.end(), [&](const auto& r) { return r.view.id == c.id; });
      s.view.computed += c.rows;
      served_by_[static_cast<size_t>(s.tenant)] += c.rows;
      const int pages = state_.needs.pages(s.view.computed);
      free_ -= (pages - s.view.pages) * setup_.groups;  // during the step
      ASSERT_GE(free_, 0);
      const int during = s.view.units + (pages - s.view.pages) * setup_.groups;
      s.view.pages = pages;
      s.view.units = s.view.own_units = held_units(pages, s.view.computed);
      freed += during - s.view.units;
      if (c.wants_logits) {
        s.view.decodes = true;
        s.view.all_logits = false;  // those of the prompt are known
        ++s.view.tokens;
        shares_.charge(s.tenant, 1);
      }
    }
    free_ += freed;
    std::erase_if(running_, [&](const Simulated& s) {
      if (s.view.tokens < s.target) return false;
      free_ += s.view.units;
      longest_life_ = std::max(longest_life_, now_ - s.came);
      return true;
    });
  }

  std::mt19937 random_;
  Scenario setup_;
  TenantShares shares_;
  int free_, longest_ = 0;  // longest_: tokens of a sequence
  bool arrivals_ = true;
  int64_t now_ = 0, longest_life_ = 0;
  int since_oldest_ = 0;
  uint64_t last_id_ = 0;
  std::array<double, 8> served_by_{};
  std::vector<Simulated> running_, waiting_;
  SchedulerState state_;
  StepPlan plan_;
};

Scenario random_scenario(unsigned seed) {
  std::mt19937 random(seed);
  Scenario s;
  s.limits.max_rows = static_cast<int>(1 + random() % (seed % 2 ? 8 : 200));
  s.limits.max_running = static_cast<int>(1 + random() % 20);
  s.limits.max_logits = s.limits.max_running + static_cast<int>(random() % 16);
  s.limits.chunked_prefill = seed % 4 != 0;
  s.limits.static_batches = seed % 7 == 0;
  s.asks = seed % 5 == 0;
  s.units = static_cast<int>(2 + random() % (seed % 3 ? 20 : 200));
  s.tenants = static_cast<int>(1 + random() % 4);
  s.priorities = static_cast<int>(1 + random() % 3);
  s.ranked = seed % 3 == 1;
  s.costs = StepCosts::line(0.001 * static_cast<double>(random() % 20), 0.0001 * static_cast<double>(random() % 30), 0);
  s.costs.per_attended = 1e-7 * static_cast<double>(random() % 10);
  if (seed % 3 == 0) {  // stairs
    double rise = 0;
    for (double& seconds : s.costs.table) seconds += rise += random() % 3 == 0 ? 0.001 : 0;
  }
  if (seed % 5 < 2) {  // groups with windows
    s.groups = static_cast<int>(2 + random() % 3);
    s.units = (s.units + 2) * s.groups;
    for (int group = static_cast<int>(random() % 2); group < s.groups; ++group)
      s.windows.push_back(static_cast<int>(2 + random() % 60));
    std::sort(s.windows.begin(), s.windows.end());
  }
  return s;
}

TEST(Scheduler, KeepsItsPromisesForAMillionRandomSteps) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    const Scenario setup = random_scenario(seed);
    Simulation s(seed, setup);
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " rows " << setup.limits.max_rows << " sequences "
                                      << setup.limits.max_running << " units " << setup.units << " groups "
                                      << setup.groups << " windows " << setup.windows.size());
    for (int i = 0; i < 2000; ++i) {
      s.step();
      ASSERT_FALSE(HasFatalFailure());
    }
    // When no more arrive, all end.
    s.stop_arrivals();
    for (int i = 0; i < 200'000 && s.alive() > 0; ++i) {
      s.step();
      ASSERT_FALSE(HasFatalFailure());
    }
    EXPECT_EQ(s.alive(), 0u);
  }
}

// An endless stream of more important requests fills the machine; the least important request still ends.
TEST(Scheduler, StarvesNobody) {
  Scenario setup;
  setup.limits.max_rows = 32;
  setup.limits.max_running = 6;
  setup.units = 30;
  setup.tenants = 3;
  setup.priorities = 3;
  setup.ranked = true;
  setup.arrivals = 1;
  Simulation s(3, setup);
  for (int i = 0; i < 60'000; ++i) {
    s.step();
    ASSERT_FALSE(HasFatalFailure());
  }
  s.stop_arrivals();
  for (int i = 0; i < 60'000 && s.alive() > 0; ++i) s.step();
  EXPECT_EQ(s.alive(), 0u);
  // At most 41 wait, and of any eight admissions one is the oldest's.
  EXPECT_LT(s.longest_life(), 60'000 / 4);
}

TEST(Scheduler, SharesFairlyBetweenTenantsWhateverPriorityTheyAskFor) {
  Scenario setup;
  setup.priorities = 3;
  setup.pushy = 0;
  setup.limits.max_rows = 64;
  setup.limits.max_running = 8;
  setup.units = 200;
  setup.tenants = 4;
  setup.arrivals = 1;
  Simulation s(5, setup);
  for (int i = 0; i < 20'000; ++i) {
    s.step();
    ASSERT_FALSE(HasFatalFailure());
  }
  double least = s.served(0), most = least;
  for (int tenant = 1; tenant < 4; ++tenant) {
    least = std::min(least, s.served(tenant));
    most = std::max(most, s.served(tenant));
  }
  EXPECT_LT(most, 1.2 * least);
}

TEST(FairQueue, ATenantWithManyRequestsDoesNotDelayTheOthers) {
  std::vector<Waiting> waiting;
  for (uint64_t i = 1; i <= 20; ++i) waiting.push_back({i, 0, 0, 100});
  waiting.push_back({21, 0, 1, 100});
  waiting.push_back({22, 0, 2, 100});
  std::vector<double> served(3, 0.0);
  std::vector<size_t> order;
  order_waiting(waiting, served, 0, 4, order);
  EXPECT_EQ(order, (std::vector<size_t>{0, 20, 21, 1}));
}

TEST(FairQueue, PrioritiesOrderATenantsOwnRequestsOnly) {
  constexpr int kFirst = std::numeric_limits<int>::min();
  std::vector<Waiting> waiting = {
      {1, 0, 0, 100}, {2, 0, 1, 100}, {3, kFirst, 0, 100}, {4, kFirst, 0, 100}, {5, 0, 1, 100}};
  std::vector<double> served(2, 0.0);
  std::vector<size_t> order;
  order_waiting(waiting, served, 0, 5, order);
  EXPECT_EQ(order, (std::vector<size_t>{2, 1, 3, 4, 0}));
  // The operator's priority counts between tenants.
  for (Waiting& w : waiting) w = {w.arrival, w.priority, w.tenant, w.tokens, w.tenant == 1 ? -1 : 0};
  served = {0, 1e9};
  order_waiting(waiting, served, 0, 5, order);
  EXPECT_EQ(order, (std::vector<size_t>{1, 4, 2, 3, 0}));
}

// Whatever priorities a tenant asks for, the places of the others stay the same, and its own requests are in their order.
TEST(Scheduler, NoTenantGainsOnAnotherByPriorities) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<SequenceView> equal;
    for (uint64_t i = random() % 12; i > 0; --i) {
      SequenceView v;
      v.id = SequenceId{i};
      v.arrival = 1 + random() % 20;
      v.tenant = static_cast<int>(random() % 3);
      v.tenant_priority = round % 2 == 0 ? 0 : v.tenant / 2;
      equal.push_back(v);
    }
    std::vector<SequenceView> pushed = equal;
    for (SequenceView& v : pushed) v.priority = v.tenant == 0 ? static_cast<int>(random() % 5) - 4 : 0;
    sort_running(equal);
    sort_running(pushed);
    for (size_t i = 0; i < equal.size(); ++i) {
      ASSERT_EQ(equal[i].tenant, pushed[i].tenant);
      if (equal[i].tenant != 0) {
        ASSERT_EQ(equal[i].id, pushed[i].id);
      }
      ASSERT_GE(pushed[i].arrival, pushed[0].arrival) << "the oldest is first";
      for (size_t j = 1; j < i; ++j) {
        if (pushed[j].tenant == 0 && pushed[i].tenant == 0) {
          ASSERT_LE(pushed[j].priority, pushed[i].priority);
        }
      }
    }
  }
}

// Compares with a plain implementation of the definition.
TEST(FairQueue, OrdersByTurnTenantServicePriorityAndArrival) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Waiting> waiting;
    std::vector<double> served;
    for (int tenant = 0; tenant < 4; ++tenant) served.push_back(random() % 200);
    for (uint64_t i = random() % 60; i > 0; --i) {
      const uint64_t last = waiting.empty() ? 0 : waiting.back().arrival;
      waiting.push_back({last + random() % 2, static_cast<int>(random() % 3), static_cast<int>(random() % 4),
                         static_cast<double>(random() % 100)});
    }
    for (Waiting& w : waiting) w.tenant_priority = round % 2 == 0 ? 0 : w.tenant % 2;
    const int since_oldest = static_cast<int>(random() % kOldestEvery);
    int since = since_oldest;
    std::vector<size_t> order, expected, left(waiting.size());
    std::iota(left.begin(), left.end(), size_t{0});
    std::vector<double> service = served;
    for (int i = 0; i < 16 && !left.empty(); ++i) {
      const auto rank = [&](size_t w) {
        return std::tuple{waiting[w].tenant_priority, service[static_cast<size_t>(waiting[w].tenant)],
                          waiting[w].arrival, w};
      };
      auto next = left.begin();
      if (since + 1 < kOldestEvery) {
        next = std::min_element(left.begin(), left.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
        const int tenant = waiting[*next].tenant;
        const auto own = [&](size_t w) { return std::tuple{waiting[w].tenant != tenant, waiting[w].priority, w}; };
        next = std::min_element(left.begin(), left.end(), [&](size_t a, size_t b) { return own(a) < own(b); });
      }
      since = waiting[*next].arrival == waiting[left.front()].arrival ? 0 : since + 1;
      service[static_cast<size_t>(waiting[*next].tenant)] += waiting[*next].tokens;
      expected.push_back(*next);
      left.erase(next);
    }
    order_waiting(waiting, served, since_oldest, 16, order);
    ASSERT_EQ(order, expected) << "round " << round;
  }
}

TEST(FairQueue, APauseEarnsNoCredit) {
  TenantShares shares;
  const int busy = shares.enter("busy");
  const int idle = shares.enter("idle");
  shares.leave(idle);
  shares.charge(busy, 5000);
  EXPECT_EQ(shares.enter("idle"), idle);
  std::vector<double> served;
  shares.copy_served(served);
  EXPECT_EQ(served[static_cast<size_t>(idle)], 5000);
}

}  // namespace
}  // namespace quire
