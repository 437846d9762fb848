// What an observer hears is what the prefix cache has.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::answer;
using testing::kTinyPageBytes;
using testing::random_tokens;
using testing::tiny_options;

// Rebuilds the set of cached pages.
struct Listener final : PageObserver {
  struct Page {
    std::optional<uint64_t> parent;
    TokenIds tokens;
    std::string adapter;
  };
  std::map<uint64_t, Page> pages;
  int stores = 0, removals = 0, steps = 0, clears = 0;

  void stored(const CachedPage& page) noexcept override {
    ++stores;
    EXPECT_EQ(page.tokens.size(), 16u);
    if (page.parent) {
      EXPECT_TRUE(pages.contains(*page.parent)) << "a page without the page before it";
    }
    const Page told{page.parent, TokenIds(page.tokens.begin(), page.tokens.end()), std::string(page.adapter)};
    EXPECT_TRUE(pages.emplace(page.hash, told).second) << "stored twice";
  }
  void removed(uint64_t hash) noexcept override {
    ++removals;
    EXPECT_EQ(pages.erase(hash), 1u);
  }
  void step_ended() noexcept override { ++steps; }
  void cleared() noexcept override { ++clears; }

  // The pages of a prompt that are cached, from its beginning on.
  int prefix(const TokenIds& prompt) const {
    std::optional<uint64_t> last;
    int count = 0;
    for (;; ++count) {
      const auto begin = prompt.begin() + 16 * count;
      if (prompt.end() - begin < 16) return count;
      const auto next = std::find_if(pages.begin(), pages.end(), [&](const auto& page) {
        return page.second.parent == last && std::equal(page.second.tokens.begin(), page.second.tokens.end(), begin);
      });
      if (next == pages.end()) return count;
      last = next->first;
    }
  }
};

TEST(PageObserver, HearsOfEveryPage) {
  const auto listener = std::make_shared<Listener>();
  {
    EngineOptions o = tiny_options();
    o.page_observer = listener;
    Engine engine(o);
    const TokenIds base = random_tokens(1, 150);
    const auto first = answer(engine, seeded_request(base, 20));
    TokenIds other = base;
    other[70] = (other[70] + 1) % 256;
    answer(engine, seeded_request(other, 1));
    EXPECT_EQ(listener->prefix(base), 9);
    EXPECT_EQ(listener->prefix(other), 9);
    EXPECT_GE(listener->stores, 9 + 5) << "and of the answer";
    EXPECT_LE(listener->stores, 9 + 5 + 2);
    EXPECT_EQ(listener->removals, 0);
  }
  EXPECT_GT(listener->steps, 20);
  EXPECT_EQ(listener->clears, 1);
}

TEST(PageObserver, KnowsHowLongAHitWillBeAlsoAfterEvictions) {
  const auto listener = std::make_shared<Listener>();
  EngineOptions o = tiny_options();
  o.max_num_seqs = 1;
  o.kv_cache_bytes = 40 * kTinyPageBytes;
  o.max_model_len = 200;
  o.page_observer = listener;
  Engine engine(o);
  int hits = 0;
  for (unsigned i = 0; i < 60; ++i) {
    const TokenIds prompt = random_tokens(i * i % 23, 100);  // some come back soon, others late
    const int known = listener->prefix(prompt);              // the engine is idle
    const int cached = answer(engine, seeded_request(prompt, 1)).last.usage.cached_tokens;
    EXPECT_GE(cached, std::min(known * 16, 99)) << i;
    EXPECT_LE(cached, known * 16 + 15) << i;
    hits += known > 0;
  }
  EXPECT_GT(hits, 0);
  EXPECT_GT(listener->removals, 0);
}

}  // namespace
}  // namespace quire
