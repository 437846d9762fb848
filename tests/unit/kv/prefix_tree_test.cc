#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "kv/page_table.h"

namespace quire {
namespace {

constexpr int kPage = 4;  // tokens
const PageKey kRoot{1, 2};

TokenIds page_of(int first) { return {first, first + 1, first + 2, first + 3}; }

struct Fixture {
  PagePool pool{8, kPage};
  PrefixTree tree{pool};

  // A chain of pages as a sequence computes it; the sequence gives its references back.
  PrefixTree::Node add(const std::vector<TokenIds>& pages) {
    PrefixTree::Node node = PrefixTree::kNone;
    PageKey key = kRoot;
    for (const TokenIds& tokens : pages) {
      key = chain(key, tokens);
      PrefixTree::Node next = tree.find(key, tokens);
      if (next == PrefixTree::kNone) {
        const PageId page = *pool.allocate();
        next = tree.insert(node, kRoot, key, tokens, page);
        pool.release(page);
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
    return tree.evict([](PageKey, PageId) {});
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
  EXPECT_EQ(f.pool.idle_pages(), 2u);
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
  EXPECT_EQ(f.pool.free_pages(), 8u);
}

TEST(PrefixTree, NeverEvictsPagesInUse) {
  Fixture f;
  f.add({page_of(1), page_of(2)});
  PageTable table;
  table.append_shared(f.pool, f.tree.page(f.find({page_of(1)})));
  EXPECT_EQ(f.pool.idle_pages(), 1u);
  EXPECT_TRUE(f.evict());
  EXPECT_FALSE(f.evict());
  table.release(f.pool);
  EXPECT_EQ(f.pool.idle_pages(), 1u);
  EXPECT_TRUE(f.evict());
}

// Random histories, compared with a plain map of chains: finds what was inserted and not evicted, can evict all idle
// pages, and leaks none.
TEST(PrefixTree, AgreesWithAPlainMap) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    PagePool pool(24, kPage);
    PrefixTree tree(pool);
    std::map<std::pair<uint64_t, uint64_t>, PageId> twin;
    std::vector<std::pair<PageTable, PrefixTree::Node>> users;
    const auto evict = [&] {
      return tree.evict([&](PageKey key, PageId page) {
        ASSERT_EQ(twin.at({key.low, key.high}), page);
        twin.erase({key.low, key.high});
      });
    };
    for (int step = 0; step < 400; ++step) {
      if (random() % 3 != 0) {  // a sequence comes: takes what is there, computes the rest
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
            table.append_shared(pool, tree.page(known));
            node = known;
            continue;
          }
          if (pool.free_pages() == 0 && !evict()) {
            complete = false;
            break;
          }
          table.grow(pool, kPage);
          node = tree.insert(node, kRoot, key, tokens, table.pages().back());
          twin[{key.low, key.high}] = table.pages().back();
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
      ASSERT_EQ(pool.page_count() - pool.free_pages(), tree.size());
    }
    for (auto& [table, node] : users) {
      if (node != PrefixTree::kNone) tree.touch(node);
      table.release(pool);
    }
    ASSERT_EQ(pool.idle_pages(), tree.size());
    while (evict()) {
    }
    ASSERT_EQ(pool.free_pages(), pool.page_count());
  }
}

}  // namespace
}  // namespace quire
