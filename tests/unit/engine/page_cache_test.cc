// What is found of a prompt, and what asking for it again and again costs.

#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kv/page_file.h"
#include "unit/engine/tiny_cache.h"

namespace quire {
namespace {

using testing::kSlow;
using testing::numbers;
using testing::TinyCache;

std::string what_is_there(const Sequence& s) {
  const CachedPages& c = s.cached;
  return std::to_string(c.found) + " found, " + std::to_string(c.idle) + " idle, " + std::to_string(c.tail) +
         " tail, " + std::to_string(c.loads) + " loads";
}

// A step looks waiting sequences up, as long as they wait: that must not cost as much as their prompts are long.
TEST(PageCache, LooksUpAgainWithFewQuestionsHoweverLongThePrompt) {
  TinyCache c(1000, 2000);
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
  TinyCache c(100, 100);
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
  TinyCache c(80, 0);
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
  TinyCache c(3, 0);
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

// However much of a prompt is in host memory, a step takes in no more than a few pages.
TEST(PageCache, TakesInAFewPagesAtATime) {
  TinyCache c(100, 200);
  const TokenIds prompt = numbers(0, 80);
  c.run_and_end(prompt);
  c.run_and_end(numbers(100'000, 99));
  const auto s = c.waiting(prompt);
  c.look_up(*s);
  ASSERT_EQ(s->cached.loads, 80);
  c.cache.adopt(*s);
  c.cache.start_loads(*s);
  int polls = 0;
  for (int before = 0; s->cached.loading; before = s->cached.load_next, ++polls) {
    EXPECT_LE(s->cached.load_next - before, 16);
    EXPECT_EQ(static_cast<int>(s->pages.pages().size()), s->cached.load_next) << "no pages before their time";
    c.cache.wait_for_loads();
    c.cache.poll_loads([&](SequenceId) { return s.get(); });
  }
  EXPECT_GE(polls, 4);
  EXPECT_EQ(s->computed, 80 * kPageTokens);
  EXPECT_EQ(s->pages.tokens(), 80 * kPageTokens);
  c.cache.release(*s);
  EXPECT_EQ(c.cache.available_pages(), 100);
}

// Stands for a disk that does not answer: the store's thread warns of a damaged file, and waits here.
class Hang : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void end() { end_.set_value(); }

 protected:
  void sink_it_(const spdlog::details::log_msg&) override { ended_.wait(); }
  void flush_() override {}

 private:
  std::promise<void> end_;
  std::shared_future<void> ended_ = end_.get_future().share();
};

TEST(PageCache, ComputesWhatTheDiskDoesNotGiveInTime) {
  const auto folder = std::filesystem::temp_directory_path() / ("quire-hang-" + std::to_string(::getpid()));
  const TokenIds prompt = numbers(0, 3), other = numbers(1000, 3);
  constexpr StepCosts kCosts{.fixed = 0, .per_row = 1e-3, .per_attended = 0};
  {
    TinyCache c(20, 0, folder.string());
    const auto s = c.waiting(prompt);
    c.run(*s);
    c.run_and_end(other);
    const PageFileName second{page_file_identity({}, testing::kTinyShape.page_bytes()), s->cached.keys[1]};
    for (int i = 0; i < 1000 && std::distance(std::filesystem::directory_iterator(folder), {}) < 6; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::fstream(folder / text(second), std::ios::in | std::ios::out | std::ios::binary).seekp(100) << "damaged";
    c.cache.release(*s);
  }
  const auto hang = std::make_shared<Hang>();
  const auto logger = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("hangs", hang));
  {
    TinyCache c(20, 0, folder.string());
    const auto load = [&](const TokenIds& ids) {
      auto s = c.waiting(ids);
      c.cache.look_up(*s, kCosts);
      if (s->cached.loads == 0) return s;
      c.cache.adopt(*s);
      c.cache.start_loads(*s);
      const auto start = Clock::now();
      while (s->cached.loading && seconds(Clock::now() - start) < 10) {
        c.cache.wait_for_loads();
        c.cache.poll_loads([&](SequenceId id) { return id == s->id ? s.get() : nullptr; });
      }
      EXPECT_FALSE(s->cached.loading);
      return s;
    };
    const auto s = load(prompt);
    EXPECT_EQ(s->cached.loads, 3);
    EXPECT_EQ(s->computed, kPageTokens) << "the first page was there";
    EXPECT_EQ(load(other)->cached.loads, 0) << "nobody else waits for it";
    hang->end();
    for (int i = 0; i < 100; ++i) {
      c.cache.wait_for_loads();
      c.cache.poll_loads([](SequenceId) { return nullptr; });
    }
    const auto later = load(other);
    EXPECT_EQ(later->cached.loads, 3);
    EXPECT_EQ(later->computed, 3 * kPageTokens);
    c.cache.release(*s);
    c.cache.release(*later);
    EXPECT_EQ(c.cache.available_pages(), 20);
  }
  spdlog::set_default_logger(logger);
  std::filesystem::remove_all(folder);
}

// Whatever happens meanwhile, it finds what it would find if it asked for the first time.
TEST(PageCache, FindsTheSameWhetherItLookedBeforeOrNot) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    TinyCache c(60, seed % 2 ? 1000 : 0);
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
