// The scheduler over caches of every kind of layout, with little memory: every sequence ends, with the right content.

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>
#include <random>
#include <vector>

#include "engine/sequence_view.h"
#include "property/engine/cache_kinds.h"

namespace quire {
namespace {

using testing::Kind;
using testing::kinds;
using testing::TinyCache;

constexpr int kLongest = 300;  // tokens of a sequence

// The steps of EngineLoop without a model.
class SmallEngine {
 public:
  SmallEngine(const Kind& kind, unsigned seed)
      : random_(seed),
        chunked_(seed % 4 != 0),
        units_(units(kind.layout()) * static_cast<int>(2 + seed % 5) / 2),
        cache_(kind.layout(), units_, kind.has_states() ? testing::kTinySequences + static_cast<int>(seed % 12) : 0,
               seed % 3 == 0 ? 150 : 0) {
    limits_.max_running = 1 + static_cast<int>(seed % testing::kTinySequences);
    limits_.max_rows = limits_.max_running + static_cast<int>(random_() % 100);
    limits_.max_logits = limits_.max_running;
    limits_.chunked_prefill = chunked_;
    state_.needs = cache_.cache.needs();
    for (int i = 0; i < 40; ++i) submit();
  }

  void run() {
    for (int steps = 0; !running_.empty() || !waiting_.empty(); ++steps) {
      ASSERT_LT(steps, 40 * 2 * kLongest) << "some sequence never ends";
      step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_EQ(cache_.cache.shared().available_units(), units_);
  }
  int preemptions() const { return preemptions_; }
  int hits() const { return hits_; }

 private:
  using Sequences = std::list<std::unique_ptr<Sequence>>;

  int units(const CacheLayout& layout) const {
    return static_cast<int>(layout.sequence_units(kLongest, chunked_ ? 1 : kLongest));
  }

  void submit() {
    TokenIds prompt = testing::numbers(static_cast<TokenId>(random_() % 2) * 10'000, 14);
    prompt.resize(1 + random_() % 220);
    const size_t own = random_() % prompt.size() * (random_() % 2);
    for (size_t i = prompt.size() - own; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(random_() % 100'000);
    waiting_.push_back(cache_.waiting(prompt, 1 + static_cast<int>(random_() % 80)));
  }

  Sequences::iterator find(Sequences& in, SequenceId id) {
    return std::find_if(in.begin(), in.end(), [&](const auto& s) { return s->id == id; });
  }

  void observe() {
    state_.running.clear();
    state_.waiting.clear();
    for (const auto& s : running_) {
      if (!s->cached.load.active) cache_.cache.advance(*s);
    }
    state_.free_units = cache_.cache.shared().available_units();
    for (const auto& s : running_) state_.running.push_back(view_running(*s, cache_.cache, true));
    sort_running(state_.running);
    if (static_cast<int>(running_.size()) >= limits_.max_running) return;
    for (const auto& s : waiting_) {
      cache_.look_up(*s);
      state_.waiting.push_back(view_waiting(*s, cache_.cache, Clock::now()));
      for (const auto& first : running_) {
        if (random_() % 4 == 0) cache_.cache.checkpoint_for(*first, *s);
      }
    }
  }

  void step() {
    cache_.loader.poll([&](SequenceId id) {
      const auto at = find(running_, id);
      return at == running_.end() ? nullptr : at->get();
    });
    observe();
    make_plan(state_, limits_, costs_, plan_);
    for (const SequenceId id : plan_.preempted) {
      const auto s = find(running_, id);
      cache_.cache.release(**s);
      const auto after = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& w) { return w->id > id; });
      waiting_.splice(after, running_, s);
      ++preemptions_;
    }
    for (const SequenceId id : plan_.admitted) {
      const auto s = find(waiting_, id);
      running_.splice(running_.end(), waiting_, s);
      cache_.cache.adopt(**s);
      hits_ += (*s)->computed > 0;
      if (std::find(plan_.loads.begin(), plan_.loads.end(), id) != plan_.loads.end()) cache_.loader.start(**s);
    }
    std::vector<int> from;
    for (const Chunk& chunk : plan_.chunks) {  // first all grow, then all are computed
      Sequence& s = **find(running_, chunk.id);
      ASSERT_LE(s.computed, chunk.first);
      ASSERT_TRUE(cache_.is_right(s));
      from.push_back(s.computed);
      cache_.cache.grow(s, chunk.rows, 0);
      s.computed += chunk.rows;
    }
    for (size_t i = 0; i < plan_.chunks.size(); ++i) cache_.forward(**find(running_, plan_.chunks[i].id), from[i]);
    for (const Chunk& chunk : plan_.chunks) {
      const auto at = find(running_, chunk.id);
      Sequence& s = **at;
      cache_.cache.register_finished(s);
      ASSERT_TRUE(cache_.is_right(s));
      if (s.computed < static_cast<int>(s.tokens.size())) continue;
      s.tokens.push_back(static_cast<TokenId>(random_() % 3));
      if (s.generated() < s.request->max_new_tokens) continue;
      cache_.cache.release(s);
      running_.erase(at);
    }
  }

  std::mt19937 random_;
  bool chunked_;
  int units_;
  TinyCache cache_;
  SchedulerLimits limits_;
  StepCosts costs_ = StepCosts::line(0.001, 0.001, 0);
  SchedulerState state_;
  StepPlan plan_;
  Sequences running_, waiting_;
  int preemptions_ = 0, hits_ = 0;
};

class ScheduledCache : public ::testing::TestWithParam<Kind> {};

TEST_P(ScheduledCache, EndsEverySequenceInLittleMemory) {
  int preemptions = 0, hits = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SmallEngine engine(GetParam(), seed);
    engine.run();
    ASSERT_FALSE(HasFatalFailure());
    preemptions += engine.preemptions();
    hits += engine.hits();
  }
  EXPECT_GT(hits, 100);
  if (!GetParam().layout().groups().empty()) {
    EXPECT_GT(preemptions, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ScheduledCache, ::testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quire
