// Which cached and stored pages of a prompt are found, and how they are loaded.

#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
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

using testing::numbers;
using testing::TinyCache;

std::string found_pages(const Sequence& s) {
  const PrefixHit& hit = s.cached.hit;
  return std::to_string(hit.found) + " found, " + std::to_string(hit.idle) + " idle, " + std::to_string(hit.tail) +
         " tail, " + std::to_string(hit.loads) + " loads";
}

// Each step looks up the waiting sequences. The cost of that must not grow with the length of their prompts.
TEST(PageCache, RepeatedLookUpsAreCheapHoweverLongThePrompt) {
  TinyCache c(1000, 2000);
  const TokenIds prompt = numbers(0, 900);
  const auto microseconds = [&](Sequence& s) {
    const auto start = Clock::now();
    c.look_up(s);
    return 1e6 * seconds(Clock::now() - start);
  };
  // The fastest of several: the machine may be busy.
  const auto expect_cheap_again = [&](Sequence& s) {
    double first = 1e9, again = 1e9;
    for (int i = 0; i < 10; ++i) {
      const auto fresh = c.waiting(prompt);
      (void)page_key(*fresh, 899);  // hashes in advance, so that only look-ups are timed
      first = std::min(first, microseconds(*fresh));
      again = std::min(again, microseconds(s));
    }
    EXPECT_LT(3 * again, first) << "microseconds";
  };
  const auto s = c.waiting(prompt);
  c.look_up(*s);
  EXPECT_EQ(found_pages(*s), "0 found, 0 idle, 0 tail, 0 loads");
  c.run_and_end(prompt);
  c.look_up(*s);
  EXPECT_EQ(found_pages(*s), "900 found, 900 idle, 0 tail, 0 loads");
  expect_cheap_again(*s);
  c.run_and_end(numbers(100'000, 699));  // evicts 600 pages
  c.look_up(*s);
  EXPECT_EQ(found_pages(*s), "300 found, 300 idle, 0 tail, 600 loads");
  expect_cheap_again(*s);
  const auto other = c.waiting(prompt);  // computes them again, some at a time
  c.cache.adopt(*other);
  for (int pages = 300; pages < 900; pages += 20) {
    c.cache.grow(*other, 20 * kPageTokens, 0);
    other->computed += 20 * kPageTokens;
    c.cache.register_finished(*other);
    c.look_up(*s);
    EXPECT_EQ(s->cached.hit.found, pages + 20);
    EXPECT_EQ(s->cached.hit.idle, 0);
    EXPECT_EQ(s->cached.hit.loads, 900 - pages - 20);
  }
}

TEST(PageCache, NoticesPagesThatLeftTheStore) {
  TinyCache c(100, 100);
  const TokenIds prompt = numbers(0, 80);
  const auto s = c.waiting(prompt);
  c.run_and_end(prompt);
  c.run_and_end(numbers(100'000, 99));
  c.look_up(*s);
  EXPECT_EQ(found_pages(*s), "0 found, 0 idle, 0 tail, 80 loads");
  for (int i = 2; i < 20; ++i) {  // pages that are looked up now and then stay, while others pass through the store
    c.run_and_end(numbers(100'000 * i, 9));
    for (int looks = 0; looks < 10; ++looks) c.look_up(*s);
  }
  EXPECT_EQ(s->cached.hit.loads, 80);
  for (int i = 20; i < 22; ++i) c.run_and_end(numbers(100'000 * i, 99));
  for (int looks = 0; looks < 11; ++looks) c.look_up(*s);
  EXPECT_EQ(found_pages(*s), "0 found, 0 idle, 0 tail, 0 loads");
}

// At most the planned number of tokens is copied from a page, even if a better page has become visible since.
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
  for (TokenId i = 2; i < 66; ++i) c.run_and_end(begins_alike(5, 1000 * i));  // more than longest_partial compares
  const auto s = c.waiting(prompt);
  c.look_up(*s);
  ASSERT_EQ(found_pages(*s), "0 found, 0 idle, 5 tail, 0 loads");
  const auto other = c.waiting(numbers(100'000, 19));
  c.cache.grow(*other, 19 * kPageTokens, 0);  // evicts some of them
  c.cache.adopt(*s);
  EXPECT_EQ(s->computed, 5);
}

// If a prompt fills the cache, the page to copy from and the copy do not both fit.
TEST(PageCache, ComputesTheLastPageOfAPromptThatFillsTheCache) {
  TinyCache c(3, 0);
  TokenIds prompt = numbers(0, 3);
  prompt.pop_back();
  for (int i = 0; i < 3; ++i) {
    const auto s = c.waiting(prompt);
    c.look_up(*s);
    EXPECT_EQ(s->cached.hit.found, i == 0 ? 0 : 2);
    c.run(*s);
    EXPECT_EQ(s->computed, 3 * kPageTokens);
    c.cache.release(*s);
  }
}

// However many pages of a prompt are in host memory, a step copies only a few.
TEST(PageCache, LoadsAFewPagesAtATime) {
  TinyCache c(100, 200);
  const TokenIds prompt = numbers(0, 80);
  c.run_and_end(prompt);
  c.run_and_end(numbers(100'000, 99));
  const auto s = c.waiting(prompt);
  c.look_up(*s);
  ASSERT_EQ(s->cached.hit.loads, 80);
  c.cache.adopt(*s);
  c.loader.start(*s);
  int polls = 0;
  for (int before = 0; s->cached.load.active; before = s->cached.load.next, ++polls) {
    EXPECT_LE(s->cached.load.next - before, 16);
    EXPECT_EQ(s->pages.pages(), s->cached.load.next) << "pages are allocated when they are requested";
    c.loader.wait();
    c.loader.poll([&](SequenceId) { return s.get(); });
  }
  EXPECT_GE(polls, 4);
  EXPECT_EQ(s->computed, 80 * kPageTokens);
  EXPECT_EQ(s->pages.tokens(), 80 * kPageTokens);
  c.cache.release(*s);
  EXPECT_EQ(c.cache.shared().available_units(), 100);
}

CacheLayout hybrid_layout() { return {KvType::kBf16, {testing::tiny_state(), testing::tiny_layer()}}; }

// Two requests come together. The second waits until the first has computed what they have in common.
TEST(PageCache, MakesACheckpointWhereAWaitingPromptParts) {
  for (const CacheLayout& layout : {hybrid_layout(), CacheLayout(KvType::kBf16, {testing::tiny_state()})}) {
    TinyCache c(layout, 200, testing::kTinySequences + 8);
    const auto first = c.waiting(numbers(0, 30));
    TokenIds prompt = numbers(0, 20);
    std::fill(prompt.begin() + 10 * kPageTokens + 3, prompt.end(), 7);
    const auto other = c.waiting(prompt), stranger = c.waiting(numbers(500, 20)), early = c.waiting(numbers(0, 2));
    for (Sequence* s : {first.get(), other.get(), stranger.get(), early.get()}) c.look_up(*s);
    c.compute(*first, 3 * kPageTokens + 1);
    EXPECT_TRUE(c.cache.checkpoint_for(*first, *other));
    EXPECT_FALSE(c.cache.checkpoint_for(*first, *stranger));
    EXPECT_FALSE(c.cache.checkpoint_for(*first, *early)) << "too little to wait for";
    c.compute(*first, 30 * kPageTokens);
    EXPECT_FALSE(c.cache.checkpoint_for(*first, *other)) << "it is computed";
    c.look_up(*other);
    EXPECT_EQ(other->cached.hit.found, 10);
    c.cache.adopt(*other);
    EXPECT_TRUE(c.is_right(*other));
    c.cache.release(*first);
    c.cache.release(*other);
  }
}

// The last checkpoint of a prompt is that of its last full page; longer prompts have one every 1024 tokens.
TEST(PageCache, FindsPromptsThatPartFromALongOne) {
  TinyCache c(hybrid_layout(), 1000, testing::kTinySequences + 16);
  const TokenIds prompt = numbers(0, 200);
  c.run_and_end(prompt);
  for (const auto& [common, found] : {std::pair{200, 200}, {199, 192}, {128, 128}, {127, 64}, {63, 0}}) {
    TokenIds other = prompt;
    std::fill(other.begin() + common * kPageTokens, other.end(), -1 - common);
    const auto s = c.waiting(other);
    c.look_up(*s);
    EXPECT_EQ(s->cached.hit.found, found) << common;
  }
}

// Checkpoints are dropped, never waited for.
TEST(PageCache, RunsWithoutCheckpointsIfThereIsNoSlot) {
  TinyCache c(hybrid_layout(), 200, testing::kTinySequences);
  c.run_and_end(numbers(0, 20));
  const auto s = c.waiting(numbers(0, 20));
  c.look_up(*s);
  EXPECT_EQ(s->cached.hit.found, 0);
  c.run(*s);
  EXPECT_TRUE(c.is_right(*s));
  c.cache.release(*s);
  EXPECT_EQ(c.cache.shared().available_units(), 200);
}

// The spine of a prompt outlives its windows and is loaded with them from the store.
TEST(PageCache, LoadsWhatWindowsLackFromTheStore) {
  const CacheLayout layout(KvType::kBf16, {testing::tiny_layer(40), testing::tiny_layer()});
  TinyCache c(layout, 100, 0, 1000);
  c.run_and_end(numbers(0, 20));
  const auto waiting = c.waiting(numbers(0, 20));
  c.look_up(*waiting);
  ASSERT_EQ(waiting->cached.hit.found, 20);
  const auto other = c.waiting(numbers(100'000, 39));
  c.run(*other);  // needs 80 units, and evicts the windows of the 40 in the tree
  c.look_up(*waiting);
  EXPECT_EQ(waiting->cached.hit.spine, 20);
  EXPECT_EQ(waiting->cached.hit.found, 0);
  EXPECT_EQ(waiting->cached.hit.loads, 20);
  c.cache.adopt(*waiting);
  c.loader.start(*waiting);
  while (waiting->cached.load.active) c.loader.poll([&](SequenceId) { return waiting.get(); });
  EXPECT_EQ(waiting->computed, 20 * kPageTokens);
  EXPECT_TRUE(c.is_right(*waiting));
  EXPECT_EQ(waiting->pages.held_units(), 20 + 3);
  c.cache.release(*waiting);
  c.cache.release(*other);
  EXPECT_EQ(c.cache.shared().available_units(), 100);
}

// Simulates a disk that hangs: the store's thread warns about a damaged file and blocks here.
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

TEST(PageCache, ComputesPagesThatTheDiskDoesNotReturnInTime) {
  const auto folder = std::filesystem::temp_directory_path() / ("quire-hang-" + std::to_string(::getpid()));
  const TokenIds prompt = numbers(0, 3), other = numbers(1000, 3);
  constexpr StepCosts kCosts = StepCosts::line(0, 1e-3, 0);
  {
    TinyCache c(20, 0, folder.string());
    const auto s = c.waiting(prompt);
    c.run(*s);
    c.run_and_end(other);
    const PageFileName second{page_file_identity({}, testing::tiny_layout().unit_bytes()), s->cached.keys[1]};
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
      c.look_up(*s, kCosts);
      if (s->cached.hit.loads == 0) return s;
      c.cache.adopt(*s);
      c.loader.start(*s);
      const auto start = Clock::now();
      while (s->cached.load.active && seconds(Clock::now() - start) < 10) {
        c.loader.wait();
        c.loader.poll([&](SequenceId id) { return id == s->id ? s.get() : nullptr; });
      }
      EXPECT_FALSE(s->cached.load.active);
      return s;
    };
    const auto s = load(prompt);
    EXPECT_EQ(s->cached.hit.loads, 3);
    EXPECT_EQ(s->computed, kPageTokens) << "the first page was read";
    EXPECT_TRUE(c.loader.disk_hangs());
    EXPECT_EQ(load(other)->cached.hit.loads, 0) << "other prompts do not wait for the disk";
    hang->end();
    for (int i = 0; i < 100; ++i) {
      c.loader.wait();
      c.loader.poll([](SequenceId) { return nullptr; });
    }
    const auto later = load(other);
    EXPECT_EQ(later->cached.hit.loads, 3);
    EXPECT_EQ(later->computed, 3 * kPageTokens);
    c.cache.release(*s);
    c.cache.release(*later);
    EXPECT_EQ(c.cache.shared().available_units(), 20);
  }
  spdlog::set_default_logger(logger);
  std::filesystem::remove_all(folder);
}

// Whatever happens between look-ups, the result is that of a first look-up.
TEST(PageCache, LookingUpAgainFindsWhatAFirstLookUpFinds) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    TinyCache c(60, seed % 2 ? 1000 : 0);
    const auto any_prompt = [&] {
      TokenIds ids = numbers(static_cast<TokenId>(random() % 3) * 10'000, static_cast<int>(random() % 25));
      const size_t own = random() % 3 == 0 ? 0 : random() % ids.size();  // length of a unique end
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
        if (random() % 4 == 0) continue;  // not looked up in this step
        const auto fresh = c.waiting(s->tokens);
        c.look_up(*s);
        c.look_up(*fresh);
        ASSERT_EQ(found_pages(*s), found_pages(*fresh)) << "seed " << seed << ", step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace quire
