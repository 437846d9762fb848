// What is found of a prompt, and what asking for it again and again costs.

#include "engine/page_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

constexpr KvShape kShape{KvType::kBf16, 1, 1, 16};
// Reading a page beats computing it.
constexpr StepCosts kSlow{.fixed = 0, .per_row = 1, .per_attended = 0};

class Cache {
 public:
  Cache(int pages, size_t stored_pages) : memory_(kShape, pages), cache(memory_, options(stored_pages)) {}

  std::unique_ptr<Sequence> waiting(const TokenIds& prompt) {
    auto request = std::make_shared<RequestState>();
    request->prompt_tokens = static_cast<int>(prompt.size());
    request->max_new_tokens = 1;
    auto s = std::make_unique<Sequence>(++last_id_, std::move(request), 0, prompt, nullptr);
    cache.begin(*s);
    return s;
  }
  // Takes what is there and computes the rest.
  void run(Sequence& s) {
    cache.adopt(s);
    const int rows = static_cast<int>(s.tokens.size()) - s.computed;
    cache.grow(s, rows);
    s.computed += rows;
    cache.register_finished(s);
  }
  void run_and_end(const TokenIds& prompt) {
    const auto s = waiting(prompt);
    run(*s);
    cache.release(*s);
  }
  // Questions that looking up takes.
  uint64_t look_up(Sequence& s) {
    const uint64_t before = cache.questions();
    cache.look_up(s, kSlow);
    return cache.questions() - before;
  }

 private:
  static PageCacheOptions options(size_t stored_pages) {
    PageCacheOptions o;
    o.host_bytes = stored_pages * kShape.page_bytes();
    return o;
  }

  KvMemory memory_;
  SequenceId last_id_ = 0;

 public:
  PageCache cache;
};

TokenIds numbers(TokenId first, int pages) {
  TokenIds ids;
  for (int i = 0; i <= pages * kPageTokens; ++i) ids.push_back(first + i);
  return ids;
}

std::string what_is_there(const Sequence& s) {
  const CachedPages& c = s.cached;
  return std::to_string(c.found) + " found, " + std::to_string(c.idle) + " idle, " + std::to_string(c.tail) +
         " tail, " + std::to_string(c.loads) + " loads";
}

// A step looks waiting sequences up, as long as they wait: that must not cost as much as their prompts are long.
TEST(PageCache, LooksUpAgainWithFewQuestionsHoweverLongThePrompt) {
  Cache c(1000, 2000);
  constexpr uint64_t kFew = 24;  // log2(1000), a few of the stored ones, and some
  const TokenIds prompt = numbers(0, 900);
  const auto s = c.waiting(prompt);
  EXPECT_LE(c.look_up(*s), kFew) << "nothing is there";
  EXPECT_EQ(what_is_there(*s), "0 found, 0 idle, 0 tail, 0 loads");
  c.run_and_end(prompt);
  EXPECT_GE(c.look_up(*s), 900u);
  EXPECT_EQ(what_is_there(*s), "900 found, 900 idle, 0 tail, 0 loads");
  for (int i = 0; i < 10; ++i) EXPECT_LE(c.look_up(*s), kFew);
  c.run_and_end(numbers(100'000, 699));  // 600 pages leave
  EXPECT_GE(c.look_up(*s), 600u);
  EXPECT_EQ(what_is_there(*s), "300 found, 300 idle, 0 tail, 600 loads");
  for (int i = 0; i < 10; ++i) EXPECT_LE(c.look_up(*s), kFew);
  const auto other = c.waiting(prompt);  // and come again, some at a time
  c.cache.adopt(*other);
  for (int pages = 300; pages < 900; pages += 20) {
    c.cache.grow(*other, 20 * kPageTokens);
    other->computed += 20 * kPageTokens;
    c.cache.register_finished(*other);
    EXPECT_LE(c.look_up(*s), kFew + 2 * 20);
    EXPECT_EQ(s->cached.found, pages + 20);
    EXPECT_EQ(s->cached.idle, 0);
    EXPECT_EQ(s->cached.loads, 900 - pages - 20);
  }
}

TEST(PageCache, NoticesThatPagesLeftTheStore) {
  Cache c(100, 100);
  const TokenIds prompt = numbers(0, 80);
  const auto s = c.waiting(prompt);
  c.run_and_end(prompt);
  c.run_and_end(numbers(100'000, 99));
  c.look_up(*s);
  EXPECT_EQ(what_is_there(*s), "0 found, 0 idle, 0 tail, 80 loads");
  for (int i = 2; i < 20; ++i) {  // pages that are asked for now and then stay, as others pass through the store
    c.run_and_end(numbers(100'000 * i, 9));
    for (int looks = 0; looks < 10; ++looks) c.look_up(*s);
  }
  EXPECT_EQ(s->cached.loads, 80);
  for (int i = 20; i < 22; ++i) c.run_and_end(numbers(100'000 * i, 99));
  for (int looks = 0; looks < 11; ++looks) c.look_up(*s);
  EXPECT_EQ(what_is_there(*s), "0 found, 0 idle, 0 tail, 0 loads");
}

// What is copied of a page is at most what was planned with, also where a better page has come into view since.
TEST(PageCache, CopiesNoMoreOfAPageThanItFound) {
  Cache c(80, 0);
  const TokenIds prompt = numbers(0, 1);
  const auto begins_alike = [&](int common, TokenId rest) {
    TokenIds ids = numbers(rest, 1);
    std::copy_n(prompt.begin(), common, ids.begin());
    return ids;
  };
  const auto best = c.waiting(begins_alike(10, 1000));
  c.run(*best);
  for (TokenId i = 2; i < 66; ++i) c.run_and_end(begins_alike(5, 1000 * i));  // too many to look beyond
  const auto s = c.waiting(prompt);
  c.look_up(*s);
  ASSERT_EQ(what_is_there(*s), "0 found, 0 idle, 5 tail, 0 loads");
  const auto other = c.waiting(numbers(100'000, 19));
  c.cache.grow(*other, 19 * kPageTokens);  // some of them leave
  c.cache.adopt(*s);
  EXPECT_EQ(s->computed, 5);
}

// The page that is copied from and the copy do not both fit when a prompt fills the cache.
TEST(PageCache, ComputesTheLastPageOfAPromptThatFillsIt) {
  Cache c(3, 0);
  TokenIds prompt = numbers(0, 3);
  prompt.pop_back();
  for (int i = 0; i < 3; ++i) {
    const auto s = c.waiting(prompt);
    c.look_up(*s);
    EXPECT_EQ(s->cached.found, i == 0 ? 0 : 2);
    c.run(*s);
    EXPECT_EQ(s->computed, 3 * kPageTokens);
    c.cache.release(*s);
  }
}

// Whatever happens meanwhile, it finds what it would find if it asked for the first time.
TEST(PageCache, FindsTheSameWhetherItLookedBeforeOrNot) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    Cache c(60, seed % 2 ? 1000 : 0);
    const auto any_prompt = [&] {
      TokenIds ids = numbers(static_cast<TokenId>(random() % 3) * 10'000, static_cast<int>(random() % 25));
      const size_t own = random() % 3 == 0 ? 0 : random() % ids.size();  // from where on it is like no other
      for (size_t i = ids.size() - own; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(random());
      return ids;
    };
    std::vector<std::unique_ptr<Sequence>> waiting, running;
    for (int i = 0; i < 8; ++i) waiting.push_back(c.waiting(any_prompt()));
    for (int step = 0; step < 100; ++step) {
      if (running.size() == 2 || (random() % 3 == 0 && !running.empty())) {
        c.cache.release(*running.front());
        running.erase(running.begin());
      } else {
        running.push_back(random() % 3 ? c.waiting(waiting[random() % waiting.size()]->tokens)
                                       : c.waiting(any_prompt()));
        c.run(*running.back());
      }
      for (const auto& s : waiting) {
        if (random() % 4 == 0) continue;  // not its turn
        const auto fresh = c.waiting(s->tokens);
        c.look_up(*s);
        c.look_up(*fresh);
        ASSERT_EQ(what_is_there(*s), what_is_there(*fresh)) << "seed " << seed << ", step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace quire
