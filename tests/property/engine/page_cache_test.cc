// Random sequences over caches of every kind of layout: a sequence always has what its next token sees, no unit is lost,
// and what is found is what was kept.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "property/engine/cache_kinds.h"

namespace quire {
namespace {

using testing::Kind;
using testing::kinds;
using testing::TinyCache;

class PageCacheOf : public ::testing::TestWithParam<Kind> {};

// Runs sequences whose prompts begin alike, with too little memory for all.
class World {
 public:
  World(const Kind& kind, unsigned seed)
      : random_(seed),
        units_(40 * groups(kind)),
        cache_(kind.layout(), units_, kind.has_states() ? testing::kTinySequences + 3 : 0, seed % 2 ? 200 : 0) {}

  void step() {
    switch (random_() % 8) {
      case 0:
      case 1:
        return start();
      case 2:
        return end();
      case 3:
        return fork();
      default:
        return compute();
    }
  }
  void end_all() {
    while (!running_.empty()) end();
    ASSERT_EQ(cache_.cache.shared().available_units(), units_) << "units were lost";
  }
  int hits() const { return hits_; }
  uint64_t loaded() const { return cache_.loader.loaded_pages(); }

 private:
  static int groups(const Kind& kind) { return static_cast<int>(kind.layout().groups().size()); }

  TokenIds prompt() {
    TokenIds ids = testing::numbers(static_cast<TokenId>(random_() % 2) * 10'000, static_cast<int>(random_() % 16));
    const size_t own = random_() % 2 ? random_() % ids.size() : 0;  // length of a unique end
    for (size_t i = ids.size() - own; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(random_() % 100'000);
    return ids;
  }

  void start() {
    if (running_.size() >= testing::kTinySequences) return;
    auto s = cache_.waiting(prompt(), 100);
    cache_.look_up(*s);
    if (!running_.empty()) cache_.cache.checkpoint_for(*running_[random_() % running_.size()], *s);
    cache_.cache.adopt(*s);
    ASSERT_EQ(s->cached.registered, s->cached.hit.found);
    ASSERT_EQ(s->pages.held_units(),
              s->cached.hit.units + (s->cached.hit.tail > 0 && s->computed % kPageTokens ? groups() : 0));
    ASSERT_TRUE(cache_.is_right(*s));
    if (s->cached.hit.loads > 0) {
      cache_.loader.start(*s);
      while (s->cached.load.active) cache_.loader.poll([&](SequenceId) { return s.get(); });
      ASSERT_TRUE(cache_.is_right(*s));
    }
    hits_ += s->computed > 0;
    running_.push_back(std::move(s));
  }

  // A chunk of the prompt, or one more token.
  void compute() {
    if (running_.empty()) return;
    const size_t i = random_() % running_.size();
    Sequence& s = *running_[i];
    if (!s.cached.load.active) cache_.cache.advance(s);
    ASSERT_TRUE(cache_.is_right(s));
    const int left = static_cast<int>(s.tokens.size()) - s.computed;
    int rows = std::min(left, 1 + static_cast<int>(random_() % 60));
    while (rows > 0 && s.pages.units_to_grow(cache_.cache.shared().pool(), s.computed + rows - s.pages.tokens()) >
                           cache_.cache.shared().available_units())
      --rows;
    if (rows == 0) return end();
    cache_.compute(s, s.computed + rows);
    ASSERT_TRUE(cache_.is_right(s));
    ASSERT_LE(s.pages.held_units(), cache_.cache.needs().units(s.computed)) << "more than the layout predicts";
    if (rows == left) s.tokens.push_back(static_cast<TokenId>(random_() % 3));
  }

  void fork() {
    if (running_.empty() || running_.size() >= testing::kTinySequences) return;
    const Sequence& s = *running_[random_() % running_.size()];
    if (s.computed == 0) return;
    auto other = cache_.waiting(s.tokens, 100);
    cache_.cache.share(s, *other);
    ASSERT_TRUE(cache_.is_right(*other));
    running_.push_back(std::move(other));
  }

  void end() {
    if (running_.empty()) return;
    const size_t i = random_() % running_.size();
    cache_.cache.release(*running_[i]);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
  }
  int groups() const { return cache_.cache.shared().groups(); }

  std::mt19937 random_;
  int units_;
  TinyCache cache_;
  std::vector<std::unique_ptr<Sequence>> running_;
  int hits_ = 0;
};

TEST_P(PageCacheOf, GivesEverySequenceWhatItsNextTokenSees) {
  int hits = 0;
  uint64_t loaded = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(GetParam(), seed);
    for (int i = 0; i < 400; ++i) {
      world.step();
      ASSERT_FALSE(HasFatalFailure()) << "step " << i;
    }
    world.end_all();
    ASSERT_FALSE(HasFatalFailure());
    hits += world.hits();
    loaded += world.loaded();
  }
  EXPECT_GT(hits, 500);
  EXPECT_GT(loaded, 100u);
}

// With memory for everything, the naive model is a list of past sequences: a prefix is found if one began with it, and,
// with states, left a checkpoint after it.
TEST_P(PageCacheOf, FindsTheLongestPrefixThatWasKept) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    TinyCache cache(GetParam().layout(), 10'000, GetParam().has_states() ? testing::kTinySequences + 500 : 0);
    struct Past {
      TokenIds tokens;
      std::vector<int> checkpoints;  // pages
    };
    std::vector<Past> past;
    for (int i = 0; i < 40; ++i) {
      TokenIds prompt = testing::numbers(0, static_cast<int>(random() % 20));
      if (!past.empty() && random() % 3 == 0) prompt = past[random() % past.size()].tokens;  // the next turn
      prompt.resize(prompt.size() - random() % 16 % prompt.size());
      const size_t own = random() % 2 ? random() % prompt.size() : 0;
      for (size_t j = prompt.size() - own; j < prompt.size(); ++j) prompt[j] = static_cast<TokenId>(random() % 100'000);

      const auto s = cache.waiting(prompt, 100);
      int expected = 0;
      const int most = (static_cast<int>(prompt.size()) - 1) / kPageTokens;
      for (const Past& p : past) {
        const auto same = static_cast<int>(
            std::mismatch(prompt.begin(), prompt.end(), p.tokens.begin(), p.tokens.end()).first - prompt.begin());
        const int pages = std::min(same / kPageTokens, most);
        if (!GetParam().has_states()) expected = std::max(expected, pages);
        for (const int checkpoint : p.checkpoints) {
          if (checkpoint <= pages) expected = std::max(expected, checkpoint);
        }
      }
      cache.look_up(*s);
      ASSERT_EQ(s->cached.hit.found, expected) << "seed " << seed << ", sequence " << i;
      cache.cache.adopt(*s);
      while (s->computed < static_cast<int>(s->tokens.size()))
        cache.compute(*s,
                      std::min(static_cast<int>(s->tokens.size()), s->computed + 1 + static_cast<int>(random() % 70)));
      for (auto left = random() % 50; left > 0; --left) {
        s->tokens.push_back(static_cast<TokenId>(random() % 100));
        cache.compute(*s, static_cast<int>(s->tokens.size()));
      }
      ASSERT_TRUE(cache.is_right(*s));
      TokenIds computed(s->tokens.begin(), s->tokens.begin() + s->computed);
      Past p{std::move(computed), {}};
      if (most > 0) p.checkpoints.push_back(most);
      const int answer = s->computed / kPageTokens;
      if (answer * kPageTokens >= static_cast<int>(prompt.size())) p.checkpoints.push_back(answer);
      past.push_back(std::move(p));
      cache.cache.release(*s);
    }
    EXPECT_EQ(cache.cache.shared().available_units(), 10'000);
  }
}

// The answer of 32k tokens of a model with windows or states takes what the layout predicts, and the next turn finds it.
TEST_P(PageCacheOf, HoldsWhatTheLayoutPredictsForALongAnswer) {
  constexpr int kTokens = 32 * 1024;
  const CacheLayout layout = GetParam().layout();
  TinyCache cache(layout, static_cast<int>(layout.sequence_units(kTokens + 1)),
                  GetParam().has_states() ? testing::kTinySequences + 2 : 0);
  const auto s = cache.waiting(testing::numbers(0, 1), kTokens);
  cache.compute(*s, static_cast<int>(s->tokens.size()));
  int most_of_windows = 0;
  while (s->computed < kTokens) {
    s->tokens.push_back(static_cast<TokenId>(s->computed % 1000));
    cache.compute(*s, s->computed + 1);
    ASSERT_LE(s->pages.held_units(), static_cast<int>(layout.sequence_units(s->computed)));
    int of_windows = 0;
    for (int group = 0; group < s->pages.groups(); ++group) {
      if (layout.groups()[static_cast<size_t>(group)].window > 0)
        of_windows += s->pages.pages() - s->pages.first_held(group);
    }
    most_of_windows = std::max(most_of_windows, of_windows);
  }
  ASSERT_TRUE(cache.is_right(*s));
  EXPECT_LE(most_of_windows, 4 * s->pages.groups());
  TokenIds next = s->tokens;
  next.push_back(5);
  cache.cache.release(*s);
  const auto turn = cache.waiting(next);
  cache.look_up(*turn);
  EXPECT_EQ(turn->cached.hit.found, kTokens / kPageTokens);
  cache.cache.adopt(*turn);
  EXPECT_TRUE(cache.is_right(*turn));
  cache.cache.release(*turn);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PageCacheOf, ::testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quire
