#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "kv/page_table.h"

namespace quire {
namespace {

constexpr int kPage = 4;  // tokens
const PageKey kRoot{1, 2};

TokenIds page_of(int first) { return {first, first + 1, first + 2, first + 3}; }

struct Fixture {
  UnitPool pool{8, kPage};
  PrefixTree tree{pool};

  // Inserts a chain of pages as a sequence does, and releases the sequence's references.
  PrefixTree::Node add(const std::vector<TokenIds>& pages) {
    PrefixTree::Node node = PrefixTree::kNone;
    PageKey key = kRoot;
    for (const TokenIds& tokens : pages) {
      key = chain(key, tokens);
      PrefixTree::Node next = tree.find(key, tokens);
      if (next == PrefixTree::kNone) {
        const UnitId unit = *pool.allocate();
        next = tree.insert(node, kRoot, key, tokens, std::array{unit});
        pool.release(unit);
      }
      node = next;
    }
    tree.touch(node);
    return node;
  }
  PrefixTree::Node find(const std::vector<TokenIds>& pages) {
    PageKey key = kRoot;
    for (const TokenIds& tokens : pages) key = chain(key, tokens);
    return tree.find(key, pages.back());
  }
  bool evict() {
    return tree.evict([](PageKey, int, UnitId) {}, [](PageKey, int) {});
  }
};

TEST(PrefixTree, FindsOnlyInsertedChains) {
  Fixture f;
  const auto node = f.add({page_of(1), page_of(10)});
  EXPECT_EQ(f.find({page_of(1), page_of(10)}), node);
  EXPECT_NE(f.find({page_of(1)}), PrefixTree::kNone);
  EXPECT_EQ(f.find({page_of(10)}), PrefixTree::kNone) << "the same page behind another past";
  EXPECT_EQ(f.find({page_of(2)}), PrefixTree::kNone);
  EXPECT_EQ(f.tree.size(), 2u);
  EXPECT_EQ(f.pool.idle_units(), 2u);
}

TEST(PrefixTree, FindsTheBeginningOfAPage) {
  Fixture f;
  const auto parent = f.add({page_of(1)});
  f.add({page_of(1), {7, 8, 9, 9}});
  const auto longer = f.add({page_of(1), {7, 8, 8, 1}});
  const auto partial = f.tree.longest_partial(parent, kRoot, TokenIds{7, 8, 8, 2, 5});
  EXPECT_EQ(partial.node, longer);
  EXPECT_EQ(partial.tokens, 3);
  EXPECT_EQ(f.tree.longest_partial(parent, kRoot, TokenIds{5}).tokens, 0);
  EXPECT_EQ(f.tree.longest_partial(PrefixTree::kNone, PageKey{9, 9}, page_of(1)).tokens, 0) << "another root";
}

TEST(PrefixTree, EvictsTheLeastRecentlyUsedLeafFirst) {
  Fixture f;
  f.add({page_of(1), page_of(2)});
  f.add({page_of(1), page_of(3)});
  f.add({page_of(4)});
  f.tree.touch(f.find({page_of(1), page_of(2)}));
  ASSERT_TRUE(f.evict());
  EXPECT_EQ(f.find({page_of(1), page_of(3)}), PrefixTree::kNone);
  ASSERT_TRUE(f.evict());
  EXPECT_EQ(f.find({page_of(4)}), PrefixTree::kNone);
  ASSERT_TRUE(f.evict());
  EXPECT_NE(f.find({page_of(1)}), PrefixTree::kNone) << "before what hangs on it";
  ASSERT_TRUE(f.evict());
  EXPECT_FALSE(f.evict());
  EXPECT_EQ(f.pool.free_units(), 8u);
}

TEST(PrefixTree, NeverEvictsPagesInUse) {
  Fixture f;
  f.add({page_of(1), page_of(2)});
  PageTable table;
  table.append_shared(f.pool, std::array{f.tree.unit(f.find({page_of(1)}), 0)});
  EXPECT_EQ(f.pool.idle_units(), 1u);
  EXPECT_TRUE(f.evict());
  EXPECT_FALSE(f.evict());
  table.release(f.pool);
  EXPECT_EQ(f.pool.idle_units(), 1u);
  EXPECT_TRUE(f.evict());
}

// Random histories, compared with a plain map of chains: finds what was inserted and not evicted, can evict all idle
// pages, and leaks none.
TEST(PrefixTree, AgreesWithAPlainMap) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    UnitPool pool(24, kPage);
    PrefixTree tree(pool);
    std::map<std::pair<uint64_t, uint64_t>, UnitId> twin;
    std::vector<std::pair<PageTable, PrefixTree::Node>> users;
    const auto evict = [&] {
      return tree.evict(
          [&](PageKey key, int, UnitId unit) {
            ASSERT_EQ(twin.at({key.low, key.high}), unit);
            twin.erase({key.low, key.high});
          },
          [](PageKey, int) {});
    };
    for (int step = 0; step < 400; ++step) {
      if (random() % 3 != 0) {  // a new sequence uses the cached pages and computes the rest
        PageTable table;
        PrefixTree::Node node = PrefixTree::kNone;
        PageKey key = kRoot;
        const int length = 1 + static_cast<int>(random() % 5);
        bool complete = true;
        for (int i = 0; i < length && complete; ++i) {
          const TokenIds tokens = page_of(static_cast<int>(random() % 3));
          key = chain(key, tokens);
          const auto known = tree.find(key, tokens);
          ASSERT_EQ(known != PrefixTree::kNone, twin.contains({key.low, key.high}));
          if (known != PrefixTree::kNone) {
            table.append_shared(pool, std::array{tree.unit(known, 0)});
            node = known;
            continue;
          }
          if (pool.free_units() == 0 && !evict()) {
            complete = false;
            break;
          }
          table.grow(pool, kPage);
          const UnitId unit = table.unit(0, table.pages() - 1);
          node = tree.insert(node, kRoot, key, tokens, std::array{unit});
          twin[{key.low, key.high}] = unit;
        }
        users.emplace_back(std::move(table), node);
      } else if (!users.empty()) {  // one goes
        const size_t i = random() % users.size();
        if (users[i].second != PrefixTree::kNone) tree.touch(users[i].second);
        users[i].first.release(pool);
        std::swap(users[i], users.back());
        users.pop_back();
      }
      ASSERT_EQ(tree.size(), twin.size());
      ASSERT_EQ(pool.unit_count() - pool.free_units(), tree.size());
    }
    for (auto& [table, node] : users) {
      if (node != PrefixTree::kNone) tree.touch(node);
      table.release(pool);
    }
    ASSERT_EQ(pool.idle_units(), tree.size());
    while (evict()) {
    }
    ASSERT_EQ(pool.free_units(), pool.unit_count());
  }
}

// ---- windows and checkpoints ----

// One group that keeps all tokens, or none, and one with a window.
struct WindowFixture {
  UnitPool pool{12, kPage};
  SlotPool slots{5, 2};
  PrefixTree tree;
  std::vector<int> evicted;  // groups

  explicit WindowFixture(int spine_groups) : tree(pool, spine_groups, 1, &slots), spines(spine_groups) {}

  PrefixTree::Node add(PrefixTree::Node parent, int first, bool with_window) {
    std::vector<UnitId> units;
    for (int g = 0; g < spines; ++g) units.push_back(*pool.allocate());
    units.push_back(with_window ? *pool.allocate() : kNoUnit);
    const TokenIds tokens = page_of(first);
    const auto node = tree.insert(parent, kRoot, chain(kRoot, tokens), tokens, units);
    for (const UnitId unit : units) {
      if (unit != kNoUnit) pool.release(unit);
    }
    return node;
  }
  PrefixTree::Node find(int first) { return tree.find(chain(kRoot, page_of(first)), page_of(first)); }
  bool evict() {
    return tree.evict([&](PageKey, int group, UnitId) { evicted.push_back(group); },
                      [&](PageKey, int slot) { evicted.push_back(10 + slot); });
  }
  bool evict_checkpoint() {
    return tree.evict_checkpoint([&](PageKey, int slot) { evicted.push_back(10 + slot); });
  }
  int spines;
};

TEST(PrefixTree, EvictsWindowsOfInnerNodesBeforeNewerSpines) {
  WindowFixture f(1);
  const auto first = f.add(PrefixTree::kNone, 1, true), second = f.add(first, 2, true);
  f.tree.touch(second);
  ASSERT_TRUE(f.evict());
  EXPECT_EQ(f.tree.unit(first, 1), kNoUnit);
  EXPECT_NE(f.tree.unit(first, 0), kNoUnit) << "the spine stays";
  EXPECT_NE(f.tree.unit(second, 1), kNoUnit);
  f.tree.touch_windows(second);
  ASSERT_TRUE(f.evict());  // the second node's spine, and what hangs on it
  EXPECT_EQ(f.evicted, (std::vector{1, 0, 1}));
  EXPECT_EQ(f.find(2), PrefixTree::kNone);
  ASSERT_TRUE(f.evict());
  EXPECT_FALSE(f.evict());
  EXPECT_EQ(f.pool.free_units(), 12u);
  EXPECT_EQ(f.tree.size(), 0u);
}

TEST(PrefixTree, TakesAWindowsUnitLater) {
  WindowFixture f(1);
  const auto node = f.add(PrefixTree::kNone, 1, false);
  EXPECT_EQ(f.tree.unit(node, 1), kNoUnit);
  const UnitId unit = *f.pool.allocate();
  f.tree.attach(node, 1, unit);
  EXPECT_EQ(f.pool.idle_units(), 1u) << "the sequence uses its unit";
  f.pool.release(unit);
  ASSERT_TRUE(f.evict());
  EXPECT_EQ(f.evicted, (std::vector{0, 1})) << "the spine is older, and the window goes with it";
  EXPECT_EQ(f.pool.free_units(), 12u);
}

TEST(PrefixTree, KeepsANodeWithoutASpineWhileItHoldsSomething) {
  WindowFixture f(0);
  const auto both = f.add(PrefixTree::kNone, 1, true), window = f.add(PrefixTree::kNone, 2, true);
  const auto state = f.add(PrefixTree::kNone, 3, false);
  f.tree.attach_checkpoint(both, *f.slots.take());
  f.tree.attach_checkpoint(state, *f.slots.take());
  EXPECT_EQ(f.tree.checkpoint(state), 6);
  EXPECT_EQ(f.tree.checkpoint(window), std::nullopt);
  while (f.evict()) {
  }
  EXPECT_EQ(f.find(1), both);
  EXPECT_EQ(f.find(2), PrefixTree::kNone);
  EXPECT_EQ(f.find(3), state);
  f.tree.touch_checkpoint(both);
  ASSERT_TRUE(f.evict_checkpoint());
  EXPECT_EQ(f.find(3), PrefixTree::kNone) << "the least recently used";
  ASSERT_TRUE(f.evict_checkpoint());
  EXPECT_FALSE(f.evict_checkpoint());
  EXPECT_EQ(f.slots.free(), 2);
  EXPECT_EQ(f.tree.size(), 0u);
}

TEST(PrefixTree, FreesTheCheckpointOfANodeThatGoes) {
  WindowFixture f(1);
  f.tree.attach_checkpoint(f.add(PrefixTree::kNone, 1, true), *f.slots.take());
  EXPECT_EQ(f.slots.free(), 1);
  while (f.evict()) {
  }
  EXPECT_EQ(f.evicted, (std::vector{1, 0, 15}));
  EXPECT_EQ(f.slots.free(), 2);
  EXPECT_FALSE(f.evict_checkpoint());
}

}  // namespace
}  // namespace quire
